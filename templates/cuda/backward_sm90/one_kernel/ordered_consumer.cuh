// SPDX-License-Identifier: Apache-2.0
// Makes all gradients of a tile, with ordered 1: the consumer of keys.cuh, extended by dQ. Each of
// two warpgroups of 64 keys writes dS^T of a step, transposed, to shared memory. Each makes half of
// dQ (half_dq.cuh) two steps later, so that the two need not run in lockstep.
#pragma once

#include "cuda/backward_sm90/one_kernel/ordered_dq.cuh"
#include "cuda/backward_sm90/one_kernel/steps_in_halves.cuh"  // where kStepsInHalves
#include "cuda/backward_sm90/one_kernel/whole_steps.cuh"      // unless kStepsInHalves

namespace attune {

class WholeSteps;
class StepsInHalves;

using OrderedSteps = Either<kInHalves, StepsInHalves, WholeSteps>::Type;

class OrderedConsumer : public OrderedSteps {
 public:
  __device__ __forceinline__ OrderedConsumer(const AttentionArgs& args, const KeysDropout& dropout,
                                             unsigned shared, int warpgroup)
      : OrderedSteps(args, dropout, shared, warpgroup), dq_(shared) {}

  __device__ __forceinline__ void begin() const {}
  __device__ __forceinline__ void end() const {}

  __device__ __forceinline__ void run(const KeysTile& tile, int first_key, unsigned parity, Dk& dk,
                                      Dv& dv) {
    begin_tile(first_key, parity, dk, dv);
    const int first = tile.blocks.end - 1, last = tile.blocks.begin;
    if (first < last) return;
#pragma unroll 1
    for (int head = 0; head < tile.heads; ++head) {
      step_all<false>(first, dk, dv);
      if (first > last) step_all<false>(first - 1, dk, dv);
#pragma unroll 1
      for (int block = first - 2; block >= last; --block) step_all<true>(block, dk, dv);
      if (first > last) finish_dq<2>(dq_);
      finish_dq<1>(dq_);
    }
  }

 private:
  // Takes step j. It issues S(j) and dQ(j - 2), and makes exponentials while dQ(j - 2) runs. Then
  // it issues dP(j) and dV(j), and makes dS(j) meanwhile. Last it issues dK(j).
  template <bool kMakesDq>
  __device__ __forceinline__ void step_all(int block, Dk& dk, Dv& dv) {
    Scores s;
    unsigned l2_at;
    const RingSlot q = issue_s(s, l2_at);
    StepStatistics<kEarlyHere.l2> l2(l2_at);
    Dq dq;
    if constexpr (kMakesDq) issue_dq<2>(dq);
    wgmma_wait<(kMakesDq ? 1 : 0)>();
    wgmma_pin(s);
    exponentiate(l2, s);
    hide_unseen(block, s, 0.f);
    if constexpr (kMakesDq) {
      wgmma_wait<0>();
      wgmma_pin(dq);
      dq_.add(warpgroup(), dq);
    }
    const unsigned delta = dout_ring_.statistics();
    const RingSlot dout = dout_ring_.take();
    make_gradients(delta, q, dout, s, dk, dv);
    give_back(q);
  }

  OrderedDq dq_;
};

}  // namespace attune
