// SPDX-License-Identifier: Apache-2.0
// All gradients of backward_sm90 by one kernel: that of backward_keys.cuh, which makes dQ, too. Two warpgroups of 64 keys each write dS^T of a step,
// transposed, to shared memory, and each multiplies half of dQ = dS K over all 128 keys, two steps later, so that they need not keep step:
//   64 rows of a step:  half of the columns        128 rows:  half of the rows
// What becomes of dQ: dq_turns.cuh.
#pragma once

#include "cuda/attention/backward_steps_in_halves.cuh"  // where kFusedInHalves
#include "cuda/attention/backward_whole_steps.cuh"      // unless kFusedInHalves
#include "cuda/attention/dq_free.cuh"                   // where kDqFree
#include "cuda/attention/dq_products.cuh"
#include "cuda/attention/dq_turns.cuh"  // unless kDqFree

namespace attune {

#if 1                              // where kFusedInHalves
using FusedSteps = StepsInHalves;  // where kFusedInHalves
#else                              // where kFusedInHalves
using FusedSteps = WholeSteps;
#endif                             // where kFusedInHalves

class FusedConsumer : public FusedSteps {
  using Dq = float[kFusedColumns / 2];

 public:
  __device__ __forceinline__ FusedConsumer(const AttentionArgs& args, unsigned shared,
                                           int warpgroup)
      : FusedSteps(args, shared, warpgroup), places_(shared) {}

  __device__ __forceinline__ void run(const KeysTile& tile, int first_key, unsigned parity, Dk& dk,
                                      Dv& dv) {
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
      places_.begin(args_, tile, head);  // where kDqFree
      step_all<false>(first, dk, dv);
      if (first > last) step_all<false>(first - 1, dk, dv);
#pragma unroll 1
      for (int block = first - 2; block >= last; --block) step_all<true>(block, dk, dv);
      if (first > last) finish_dq<2>();
      finish_dq<1>();
    }
  }

 private:
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
    if (missing_ || blocks_.needs_mask(block)) hide(block, s), hide_missing(s);
    if constexpr (kMakesDq) {
      wgmma_wait<0>();
      wgmma_pin(dq);
      places_.add(warpgroup(), dq);
    }
    const unsigned delta = dout_ring_.statistics();
    const RingSlot dout = dout_ring_.take();
    make_gradients(delta, q, dout, s, dk, dv);
    give_back(q);
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
    issue_dq_product(dq, rows, keys);
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

  bool missing_ = false;  // keys past the end
  DqPlaces places_;
};

using AllConsumer = FusedConsumer;
constexpr int kFusedThreads = kKeysThreads;
constexpr PrefillSm90Registers kFusedRegisters = kKeysRegisters;

}  // namespace attune
