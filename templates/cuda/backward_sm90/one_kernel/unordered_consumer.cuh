// SPDX-License-Identifier: Apache-2.0
// Makes all gradients of a tile, with ordered 0: blocks of keys add to dQ in no fixed order. S and
// dP of a step are issued together. The first exponentials are made while dP runs; the others
// alternate with dS of earlier rows. dQ of the previous step is issued ahead of dV and dK. It
// leaves through shared memory while these run (unordered_dq.cuh). dS has two slots. Both
// warpgroups release a slot after they have multiplied it, so they are at most one step apart.
#pragma once

#include "cuda/backward_sm90/one_kernel/unordered_dq.cuh"
#include "cuda/backward_sm90/one_kernel/whole_steps.cuh"

namespace attune {

class UnorderedConsumer : public WholeSteps {
 public:
  __device__ __forceinline__ UnorderedConsumer(const AttentionArgs& args,
                                               const KeysDropout& dropout, unsigned shared,
                                               int warpgroup)
      : WholeSteps(args, dropout, shared, warpgroup), dq_(shared) {}

  // Makes dK and dV of a tile, and adds to dQ. `parity`: phase parity of the barriers of K and V.
  __device__ __forceinline__ void run(const KeysTile& tile, unsigned parity, const KeysMaps& maps) {
    const int first_key = tile.first_key + warpgroup() * kWarpgroupRows;
    Dk dk;
    Dv dv;
    begin_keys(first_key, dk, dv);
    int head = tile.head * kGqaRatio + tile.head_begin;
    dropout_.begin(args_, tile.batch, head, first_key);
    await_all_keys(shared_, parity);
    mbarrier_wait(shared_ + kParts.second_full + 8 * warpgroup(), parity, "v_full");
    const int begin = tile.blocks.begin, end = tile.blocks.end;
    if (begin < end) {
      step_all<false>(begin, dk, dv);
      int block = begin;
#pragma unroll 1
      for (int left = (end - begin) * tile.heads - 1; left > 0; --left) {
        block = block + 1 < end ? block + 1 : begin;
        if (kGqaRatio > 1 && block == begin) dropout_.begin(args_, tile.batch, ++head, first_key);
        step_all<true>(block, dk, dv);
      }
      finish_dq<1>(dq_);
      return_ds_slot(shared_, kept_ - 1);
    }
    dropout_.scale_kept(dv);
    dropout_.scale_kept(dk);
    release_k();
    if constexpr (kSplitsHeads)
      leave_sums(first_key, tile.slice, dk, dv);
    else
      end_tile({0, first_key, tile.head, tile.batch}, maps, dk, dv);
  }

 private:
  static constexpr BackwardSm90Layout kParts = kOneKernelLayout.parts;
  static constexpr int kChunks = kKeyBlockM / 16;  // 16 rows each, eight elements per thread
  static constexpr int kAhead = 2;                 // chunks whose exponentials are made ahead of dP
  static_assert(kEarly.delta >= 2, "delta of the first chunk is there");

  // Releases K, since dQ of the last step is complete. K of the next tile then loads while dV and
  // dK are stored.
  __device__ __forceinline__ void release_k() const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kParts.first_empty + 8 * i);
  }

  __device__ __forceinline__ void release_v() const {
    mbarrier_arrive_if(threadIdx.x % kWarpgroupThreads == 0,
                       shared_ + kParts.second_empty + 8 * warpgroup());
  }

  // Leaves the sums of a part of the heads in the workspace (split_heads 1).
  __device__ __forceinline__ void leave_sums(int first_key, int slice, const Dk& dk,
                                             const Dv& dv) const {
    named_barrier_sync(kBarrierWarpgroup + warpgroup(), kWarpgroupThreads);  // V no longer read
    release_v();
    float* const slices = slices_of(reread(args_));
    store_sums(args_, slices, slice, first_key, kSliceOfDv, dv);
    store_sums(args_, slices, slice, first_key, 0, dk);
  }

  // Stores dV and dK. dV is staged in V's shared memory, dK in the staging memory of dQ.
  __device__ __forceinline__ void end_tile(const TensorCoord& at, const KeysMaps& maps,
                                           const Dk& dk, const Dv& dv) {
    store_gradient<kDtypeKv>(*maps.dv, shared_ + kParts.second + warpgroup() * kParts.second_bytes,
                             warpgroup(), at, 1.f, dv);
    dq_.put_dk(warpgroup(), args_.softmax_scale, dk);
    tma_store_wait_read();  // a branch here makes the compiler treat warps as divergent
    release_v();
  }

  // Turns scores of a step into exponents of P, and masks them.
  __device__ __forceinline__ void scale(StepStatistics<kEarly.l2>& l2, int block, Scores& s) const {
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 2; i += 4) {
      l2.load_late(i / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        s[i + j] = s[i + j] * args_.softmax_scale_log2 - l2.of(i / 4, j % 2);
    }
    hide_unseen(block, s, -__int_as_float(0x7f800000));
  }

  __device__ __forceinline__ static void exponentiate_chunk(int chunk, Scores& s) {
#pragma unroll
    for (int i = 8 * chunk; i < 8 * chunk + 8; ++i) s[i] = exp2_approx(s[i]);
  }

  // Makes dS of a chunk, in registers and in shared memory, and rounds its P.
  __device__ __forceinline__ void differentiate_chunk(int chunk,
                                                      const StepStatistics<kEarly.delta>& delta,
                                                      const Scores& s, const Scores& dp,
                                                      unsigned to, Rounded& p, Rounded& ds) const {
#pragma unroll
    for (int i = 8 * chunk; i < 8 * chunk + 8; i += 2) {
      ds[i / 2] = pack<kDtypeQ>(s[i] * (dp[i] - delta.of(i / 4, 0)),
                                s[i + 1] * (dp[i + 1] - delta.of(i / 4, 1)));
      p[i / 2] = pack<kDtypeQ>(s[i], s[i + 1]);
    }
#pragma unroll
    for (int i = 8 * chunk; i < 8 * chunk + 8; i += 4)
      dropout_.redo(i, s, dp, {delta.of(i / 4, 0), delta.of(i / 4, 1)}, p, ds);
    const unsigned words[4] = {ds[4 * chunk], ds[4 * chunk + 1], ds[4 * chunk + 2],
                               ds[4 * chunk + 3]};
    write_ds(to + chunk * 16 * kPanelRowBytes, words);
  }

  // Takes step j. It issues the products S(j) and dP(j), then dQ(j - 1), dV(j) and dK(j).
  template <bool kMakesDq>
  __device__ __forceinline__ void step_all(int block, Dk& dk, Dv& dv) {
    Scores s, dp;
    unsigned at;
    const RingSlot q = issue_s(s, at);
    StepStatistics<kEarly.l2> l2(at);
    const unsigned delta_at = dout_ring_.statistics();
    const RingSlot dout = dout_ring_.take();
    issue_dp(dout, dp);
    dropout_.make(block);
    wgmma_wait<1>();
    wgmma_pin(s);
    scale(l2, block, s);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) exponentiate_chunk(i, s);
    StepStatistics<kEarly.delta> delta(delta_at);
    await_ds_slot(shared_, kept_);
    wgmma_wait<0>();
    wgmma_pin(dp);
    Rounded p, ds;
    const unsigned to = kept_place();
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {  // exponentials take as long as the rest
      delta.load_late(2 * i + 2);        // delta of the next chunk
      delta.load_late(2 * i + 3);
      if (i + kAhead < kChunks) exponentiate_chunk(i + kAhead, s);
      differentiate_chunk(i, delta, s, dp, to, p, ds);
    }
    tell_kept();
    wgmma_fence();
    Dq dq;
    if constexpr (kMakesDq) issue_dq<2>(dq);
    issue_dv(p, dout, dv);
    issue_dk(ds, q, dk);
    if constexpr (kMakesDq) {
      wgmma_wait<2>();
      wgmma_pin(dq);
      return_ds_slot(shared_, kept_ - 2);
      dq_.add(warpgroup(), dq);
    }
    wgmma_wait<1>();
    wgmma_pin(dv);
    give_back(dout);
    wgmma_wait<0>();
    wgmma_pin(dk);
    give_back(q);
  }

  UnorderedDq dq_;
};

}  // namespace attune
