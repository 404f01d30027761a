// SPDX-License-Identifier: Apache-2.0
// All gradients of backward_sm90 by one kernel: that of backward_keys.cuh, which makes dQ, too. Two warpgroups of 64 keys each write dS^T of a step,
// transposed, to shared memory, and each multiplies half of dQ = dS K over all 128 keys, two steps later, so that they need not keep step:
//   64 rows of a step:  half of the columns        128 rows:  half of the rows
// What becomes of dQ: dq_turns.cuh.
#pragma once

#include "cuda/attention/backward_store.cuh"
#include "cuda/attention/dq_turns.cuh"
#include "cuda/ptx/stmatrix_transposed.cuh"

namespace attune {

class FusedConsumer : public KeysConsumer<true, true> {
  using Base = KeysConsumer<true, true>;
  using Scores = float[kKeyBlockM / 2];
  using Rounded = unsigned[kKeyBlockM / 4];
  using Half = float[kKeyBlockM / 4];  // of a step's rows
  using RoundedHalf = unsigned[kKeyBlockM / 8];
  using Dk = float[kHeadDimQk / 2];
  using Dv = float[kHeadDimV / 2];
  using Dq = float[kFusedColumns / 2];
  static constexpr bool kInHalves = backward_fused_in_halves(kKeyBlockM, kHeadDimQk + kHeadDimV);

 public:
  __device__ __forceinline__ FusedConsumer(const AttentionArgs& args, unsigned shared,
                                           int warpgroup)
      : Base(args, shared, warpgroup), shared_(shared), places_(shared) {}

  __device__ __forceinline__ void run_all(const KeysTile& tile, int first_key, unsigned parity,
                                          Dk& dk, Dv& dv) {
    first_key_ = first_key;
    missing_ = first_key + kWarpgroupRows > args_.seqlen_kv;
    blocks_ =
        row_blocks<kKeyBlockM>(args_, first_key, min(first_key + kWarpgroupRows, args_.seqlen_kv));
    clear(dk);
    clear(dv);
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // dQ wants K of both
      mbarrier_wait(shared_ + kFusedLayout.parts.first_full + 8 * i, parity, "k_full");
      mbarrier_wait(shared_ + kFusedLayout.parts.second_full + 8 * i, parity, "v_full");
    }
    const int first = tile.blocks.end - 1, last = tile.blocks.begin;
    if (first < last) return;
#pragma unroll 1
    for (int head = 0; head < kGqaRatio; ++head) {
      step_all<false>(first, dk, dv);
      if (first > last) step_all<false>(first - 1, dk, dv);
#pragma unroll 1
      for (int block = first - 2; block >= last; --block) step_all<true>(block, dk, dv);
      if (first > last) finish_dq<2>();
      finish_dq<1>();
    }
  }

 private:
  __device__ __forceinline__ static int warpgroup() {
    return __shfl_sync(~0u, reread_thread_index() / kWarpgroupThreads, 0) - 1;
  }

  // Of step j: S(j), then dQ(j - 2) beside exponentials; dP(j) and dV(j), dS beside that; dK(j).
  template <bool kMakesDq>
  __device__ __forceinline__ void step_all(int block, Dk& dk, Dv& dv) {
    Scores s;
    const unsigned l2 = q_ring_.statistics();
    const RingSlot q = q_ring_.take();
    wgmma_fence();
    wgmma_k_q(s, k_, by_rows(q.tile));
    wgmma_commit();
    Dq dq;
    if constexpr (kMakesDq) issue_dq<2>(dq);
    wgmma_wait<(kMakesDq ? 1 : 0)>();
    wgmma_pin(s);
    exponentiate(l2, s);
    if (missing_ || blocks_.needs_mask(block)) hide_all(block, s);
    if constexpr (kMakesDq) {
      wgmma_wait<0>();
      wgmma_pin(dq);
      places_.add(warpgroup(), dq);
    }
    const unsigned delta = dout_ring_.statistics();
    const RingSlot dout = dout_ring_.take();
    if constexpr (kInHalves)
      make_gradients_in_halves(delta, q, dout, s, dk, dv);
    else
      make_gradients(delta, q, dout, s, dk, dv);
    give_back(q);
  }

  __device__ __forceinline__ void make_gradients(unsigned delta, const RingSlot& q,
                                                 const RingSlot& dout, const Scores& s, Dk& dk,
                                                 Dv& dv) {
    Scores dp;
    Rounded p, ds;
    round<0>(s, p);
    wgmma_fence();
    issue_dp(dout, dp);
    issue_dv(p, dout, dv);
    wgmma_wait<1>();
    wgmma_pin(dp);
    differentiate(delta, s, dp, ds);
    keep<0>(ds);
    tell_kept();
    wgmma_fence();
    wgmma_ds_q(dk, ds, by_columns<kKeyBlockM>(q.tile), 1);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_pin(dv);
    give_back(dout);
    wgmma_wait<0>();
    wgmma_pin(dk);
  }

  // Half of the rows at a time: all of P, dP and what is rounded of P are more than registers hold.
  __device__ __forceinline__ void make_gradients_in_halves(unsigned delta, const RingSlot& q,
                                                           const RingSlot& dout, const Scores& s,
                                                           Dk& dk, Dv& dv) {
    constexpr int kNext = kKeyBlockM / 2 * kPanelRowBytes;
    RoundedHalf ds;
    {
      Half dp;
      RoundedHalf p;
      round<0>(s, p);
      wgmma_fence();
      issue_half(p, dout.tile, dp, dv);
      wgmma_wait<1>();
      wgmma_pin(dp);
      differentiate_half<0>(delta, s, dp, ds);
      keep<0>(ds);
    }
    Half dp;
    RoundedHalf p, ds_next;
    round<1>(s, p);
    wgmma_fence();
    wgmma_v_dout_half(dp, v_, by_rows(dout.tile + kNext));
    wgmma_commit();
    wgmma_ds_q_half(dk, ds, by_columns<kKeyBlockM>(q.tile), 1);
    wgmma_p_dout_half(dv, p, by_columns<kKeyBlockM>(dout.tile + kNext), 1);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_pin(dp);
    differentiate_half<1>(delta, s, dp, ds_next);
    keep<1>(ds_next);
    tell_kept();
    wgmma_wait<0>();
    wgmma_pin(dv);
    wgmma_pin(dk);
    give_back(dout);
    wgmma_fence();
    wgmma_ds_q_half(dk, ds_next, by_columns<kKeyBlockM>(q.tile + kNext), 1);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(dk);
  }

  __device__ __forceinline__ void issue_half(const RoundedHalf& p, unsigned dout, Half& dp,
                                             Dv& dv) {
    wgmma_v_dout_half(dp, v_, by_rows(dout));
    wgmma_commit();
    wgmma_p_dout_half(dv, p, by_columns<kKeyBlockM>(dout), 1);
    wgmma_commit();
  }

  // P of part `kPart` of the rows, of kCount words.
  template <int kPart, int kCount>
  __device__ __forceinline__ static void round(const Scores& s, unsigned (&p)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      p[i] = pack<kDtypeQ>(s[2 * (kPart * kCount + i)], s[2 * (kPart * kCount + i) + 1]);
  }

  template <int kPart>
  __device__ __forceinline__ static void differentiate_half(unsigned delta, const Scores& p,
                                                            const Half& dp, RoundedHalf& ds) {
    constexpr int kFrom = kPart * kKeyBlockM / 4;
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 4; i += 4) {
      float of[2];
      load_pair(delta, (kFrom + i) / 4, of);
#pragma unroll
      for (int j = i; j < i + 4; j += 2)
        ds[j / 2] =
            pack<kDtypeQ>(p[kFrom + j] * (dp[j] - of[0]), p[kFrom + j + 1] * (dp[j + 1] - of[1]));
    }
  }

  // dS^T of a part of a step's rows, as rows of 64 keys.
  template <int kPart, int kCount>
  __device__ __forceinline__ void keep(const unsigned (&ds)[kCount]) const {
    const int thread = reread_thread_index() % kWarpgroupThreads;
    const int lane = thread % 32, warp = thread / 32;
    const int row = kPart * kCount * 4 + lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
    const unsigned to = ds_tile(kept_) + warpgroup() * kKeyBlockM * kPanelRowBytes +
                        row * kPanelRowBytes + ((chunk ^ row % 8) << 4);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      const unsigned words[4] = {ds[4 * i], ds[4 * i + 1], ds[4 * i + 2], ds[4 * i + 3]};
      stmatrix_x4_transposed(to + i * 16 * kPanelRowBytes, words);
    }
  }

  __device__ __forceinline__ void tell_kept() {
    fence_proxy_async();
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0,
                       shared_ + kFusedLayout.ds_full + 8 * (kept_ % kFusedDsSlots));
    ++kept_;
  }

  // Of the step that was kept `kBack` steps ago, when both warpgroups have.
  template <int kBack>
  __device__ __forceinline__ void issue_dq(Dq& dq) const {
    const unsigned step = kept_ - kBack;
    mbarrier_wait(shared_ + kFusedLayout.ds_full + 8 * (step % kFusedDsSlots),
                  step / kFusedDsSlots & 1, "ds full");
    constexpr int kHalfOfK =
        kFusedByRows ? 0 : kFusedColumns / kPanelColumns * kWarpgroupRows * kPanelRowBytes;
    constexpr int kHalfOfDs = kFusedByRows ? kWarpgroupRows * kPanelRowBytes : 0;
    const unsigned rows = ds_tile(step) + warpgroup() * kHalfOfDs;
    const unsigned keys = shared_ + kFusedLayout.parts.first + warpgroup() * kHalfOfK;
    wgmma_ds_keys(dq, by_rows(rows), by_columns<kWarpgroupRows>(keys), 0);
    wgmma_ds_keys(dq, by_rows(rows + kKeyBlockM * kPanelRowBytes),
                  by_columns<kWarpgroupRows>(keys + kFusedLayout.parts.first_bytes), 1);
    wgmma_commit();
  }

  template <int kBack>
  __device__ __forceinline__ void finish_dq() {
    Dq dq;
    wgmma_fence();
    issue_dq<kBack>(dq);
    wgmma_wait<0>();
    wgmma_pin(dq);
    places_.add(warpgroup(), dq);
  }

  // Nobody reads a slot that is written: whoever writes step j has seen the other warpgroup keep step j - 2, behind its dQ of step j - 4.
  __device__ __forceinline__ unsigned ds_tile(unsigned step) const {
    return shared_ + kFusedLayout.parts.ds + step % kFusedDsSlots * kFusedLayout.parts.ds_bytes;
  }

  // Keys past the end too: K is zero there, and P may be inf.
  __device__ __forceinline__ void hide_all(int block, Scores& p) const {
    hide(block, p);
    const int keys = args_.seqlen_kv - first_key_ - first_accumulator_row();
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 2; ++i)
      if (i / 2 % 2 * 8 >= keys) p[i] = 0.f;
  }

  unsigned shared_;
  bool missing_ = false;  // keys past the end
  unsigned kept_ = 0;     // steps whose dS this warpgroup has written
  DqPlaces places_;
};

}  // namespace attune
