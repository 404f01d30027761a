// SPDX-License-Identifier: Apache-2.0
// Makes dQ = dS K of a step. Each of the two warpgroups of keys makes half of it, over all 128
// keys:
//   64 rows of a step:  half of the columns
//   128 rows:           half of the rows
//   other rows:         half of the columns, as dQ^T
// ordered_dq.cuh and unordered_dq.cuh add dQ to the workspace.
#pragma once

#include "cuda/backward_sm90/one_kernel/ds.cuh"
#include "cuda/backward_sm90/one_kernel/kept_scores.cuh"

namespace attune {

class HalfDq : public KeptScores {
 protected:
  using Dq = float[kOneKernelColumns / 2];

  using KeptScores::KeptScores;

  __device__ __forceinline__ void begin_keys(int first_key, Dk& dk, Dv& dv) {
    first_key_ = first_key;
    missing_ = first_key + kWarpgroupRows > args_.seqlen_kv;
    blocks_ =
        row_blocks<kKeyBlockM>(args_, first_key, min(first_key + kWarpgroupRows, args_.seqlen_kv));
    clear(dk);
    clear(dv);
  }

  // Begins a tile and waits for K and V. `parity`: phase parity of the barriers of K and V.
  __device__ __forceinline__ void begin_tile(int first_key, unsigned parity, Dk& dk, Dv& dv) {
    begin_keys(first_key, dk, dv);
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // dQ needs K of both warpgroups
      mbarrier_wait(shared_ + kOneKernelLayout.parts.first_full + 8 * i, parity, "k_full");
      mbarrier_wait(shared_ + kOneKernelLayout.parts.second_full + 8 * i, parity, "v_full");
    }
  }

  // Issues S^T of the next step. Sets `l2` to the shared address of its L2.
  __device__ __forceinline__ RingSlot issue_s(Scores& s, unsigned& l2) {
    l2 = q_ring_.statistics();
    const RingSlot q = q_ring_.take();
    wgmma_fence();
    wgmma_k_q(s, k_, by_rows(q.tile));
    wgmma_commit();
    return q;
  }

  // Sets scores of a block that the mask hides to `hidden`.
  __device__ __forceinline__ void hide_unseen(int block, Scores& s, float hidden) const {
    if (missing_ || blocks_.needs_mask(block)) hide(block, s, hidden), hide_missing(s, hidden);
  }

  // Waits until both warpgroups have written dS of the step `kBack` steps ago, then issues dQ of
  // that step.
  template <int kBack>
  __device__ __forceinline__ void issue_dq(Dq& dq) const {
    const unsigned step = kept_ - kBack;
    await_ds(shared_, step);
    constexpr bool kByRows = kDqHalf == DqHalf::kRows;
    constexpr int kHalfOfK =
        kByRows ? 0 : kDqColumns / 2 / kPanelColumns * kWarpgroupRows * kPanelRowBytes;
    constexpr int kHalfOfDs = kByRows ? kWarpgroupRows * kPanelRowBytes : 0;
    const unsigned rows = ds_tile(shared_, step) + warpgroup() * kHalfOfDs;
    const unsigned keys = shared_ + kOneKernelLayout.parts.first + warpgroup() * kHalfOfK;
    issue_dq_product(dq, rows, keys);
  }

  // Makes dQ of the step `kBack` steps ago, and adds it to `sums`.
  template <int kBack, class Sums>
  __device__ __forceinline__ void finish_dq(Sums& sums) {
    Dq dq;
    wgmma_fence();
    issue_dq<kBack>(dq);
    wgmma_wait<0>();
    wgmma_pin(dq);
    sums.add(warpgroup(), dq);
  }

  bool missing_ = false;  // the warpgroup has keys past the end
};

}  // namespace attune
