// SPDX-License-Identifier: Apache-2.0
// All gradients of backward_sm90 by one kernel where blocks of keys add to dQ in no order. S and dP of a step are issued at once, exponentials stand
// beside dP; dQ of the step before is issued ahead of dV and dK, and leaves beside them, through shared memory (dq_free.cuh). dS of a step has one
// of two places, which the other warpgroup gives back when it has multiplied it: the two are no more than a step apart.
#pragma once

#include "cuda/attention/backward_ds_slots.cuh"
#include "cuda/attention/backward_half_dq.cuh"

namespace attune {

class FreeConsumer : public HalfDq {
 public:
  __device__ __forceinline__ FreeConsumer(const AttentionArgs& args, unsigned shared, int warpgroup)
      : HalfDq(args, shared, warpgroup) {}

  // `parity`: of the barriers of what stays.
  __device__ __forceinline__ void run(const KeysTile& tile, unsigned parity, const KeysMaps& maps) {
    const int first_key = tile.first_key + warpgroup() * kWarpgroupRows;
    Dk dk;
    Dv dv;
    begin_keys(first_key, dk, dv);
    await_all_keys(shared_, parity);
    mbarrier_wait(shared_ + kParts.second_full + 8 * warpgroup(), parity, "v_full");
    const int begin = tile.blocks.begin, end = tile.blocks.end;
    if (begin < end) {
      step_all<false>(begin, dk, dv);
      int block = begin;
#pragma unroll 1
      for (int left = (end - begin) * kGqaRatio - 1; left > 0; --left) {
        block = block + 1 < end ? block + 1 : begin;
        step_all<true>(block, dk, dv);
      }
      finish_dq<1>();
      return_ds_slot(shared_, kept_ - 1);
    }
    end_tile({0, first_key, tile.head, tile.batch}, maps, dk, dv);
  }

 private:
  static constexpr BackwardSm90Layout kParts = kFusedLayout.parts;
  static constexpr bool kEarlyDv = backward_free_early_dv(kKeyBlockM, kHeadDimQk + kHeadDimV);

  // K is given back as soon as dQ of the last step is complete: dV leaves through V, and dK as dQ does, while K of the next tile comes.
  __device__ __forceinline__ void end_tile(const TensorCoord& at, const KeysMaps& maps,
                                           const Dk& dk, const Dv& dv) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kParts.first_empty + 8 * i);
    store_gradient<kDtypeKv>(*maps.dv, shared_ + kParts.second + warpgroup() * kParts.second_bytes,
                             warpgroup(), at, 1.f, dv);
    places_.put_dk(warpgroup(), args_.softmax_scale, dk);
    tma_store_wait_read();  // a branch here would have the compiler take warps for divergent in all steps
    mbarrier_arrive_if(threadIdx.x % kWarpgroupThreads == 0,
                       shared_ + kParts.second_empty + 8 * warpgroup());
  }

  // Of step j: S(j) and dP(j); dQ(j - 1), dV(j) and dK(j).
  template <bool kMakesDq>
  __device__ __forceinline__ void step_all(int block, Dk& dk, Dv& dv) {
    Scores s, dp;
    unsigned l2;
    const RingSlot q = issue_s(s, l2);
    const unsigned delta = dout_ring_.statistics();
    const RingSlot dout = dout_ring_.take();
    issue_dp(dout, dp);
    wgmma_wait<1>();
    wgmma_pin(s);
    exponentiate(l2, s);
    hide_unseen(block, s);
    Rounded p, ds;
    if constexpr (kEarlyDv) {
      round<0>(s, p);
      wgmma_fence();
      issue_dv(p, dout, dv);
    }
    wgmma_wait<(kEarlyDv ? 1 : 0)>();
    wgmma_pin(dp);
    differentiate(delta, s, dp, ds);
    if constexpr (!kEarlyDv) round<0>(s, p);
    await_ds_slot(shared_, kept_);
    keep<0>(ds);
    tell_kept();
    wgmma_fence();
    Dq dq;
    if constexpr (kMakesDq) issue_dq<2>(dq);
    if constexpr (!kEarlyDv) issue_dv(p, dout, dv);
    issue_dk(ds, q, dk);
    if constexpr (kEarlyDv) {
      wgmma_wait<(kMakesDq ? 2 : 1)>();
      wgmma_pin(dv);
      give_back(dout);
    }
    if constexpr (kMakesDq) {
      wgmma_wait<(kEarlyDv ? 1 : 2)>();
      wgmma_pin(dq);
      return_ds_slot(shared_, kept_ - 2);
      places_.add(warpgroup(), dq);
    }
    if constexpr (!kEarlyDv) {
      wgmma_wait<1>();
      wgmma_pin(dv);
      give_back(dout);
    }
    wgmma_wait<0>();
    wgmma_pin(dk);
    give_back(q);
  }
};

}  // namespace attune
