// SPDX-License-Identifier: Apache-2.0
// All gradients of backward_sm90 by one kernel where blocks of keys add to dQ in no order: as backward_fused.cuh, but dQ of the step before is
// issued ahead of dK and leaves beside it, through shared memory (dq_free.cuh). So nothing of it waits in registers while P and dP do.
#pragma once

#include "cuda/attention/backward_half_dq.cuh"

namespace attune {

class FreeConsumer : public HalfDq {
 public:
  __device__ __forceinline__ FreeConsumer(const AttentionArgs& args, unsigned shared, int warpgroup)
      : HalfDq(args, shared, warpgroup) {}

  __device__ __forceinline__ void run(const KeysTile& tile, int first_key, unsigned parity, Dk& dk,
                                      Dv& dv) {
    begin_tile(first_key, parity, dk, dv);
    const int first = tile.blocks.end - 1, last = tile.blocks.begin;
    if (first < last) return;
#pragma unroll 1
    for (int head = 0; head < kGqaRatio; ++head) {
      step_all<false>(first, dk, dv);
#pragma unroll 1
      for (int block = first - 1; block >= last; --block) step_all<true>(block, dk, dv);
      finish_dq<1>();
    }
  }

 private:
  // Of step j: S(j); dP(j) and dV(j); dQ(j - 1) and dK(j).
  template <bool kMakesDq>
  __device__ __forceinline__ void step_all(int block, Dk& dk, Dv& dv) {
    Scores s;
    unsigned l2;
    const RingSlot q = issue_s(s, l2);
    wgmma_wait<0>();
    wgmma_pin(s);
    exponentiate(l2, s);
    hide_unseen(block, s);
    const unsigned delta = dout_ring_.statistics();
    const RingSlot dout = dout_ring_.take();
    Rounded ds;
    make_ds(delta, dout, s, dv, ds);
    wgmma_fence();
    Dq dq;
    if constexpr (kMakesDq) issue_dq<2>(dq);
    issue_dk(ds, q, dk);
    wgmma_wait<1>();
    wgmma_pin(dv);
    give_back(dout);
    if constexpr (kMakesDq) {
      wgmma_pin(dq);
      places_.add(warpgroup(), dq);
    }
    wgmma_wait<0>();
    wgmma_pin(dk);
    give_back(q);
  }
};

}  // namespace attune
