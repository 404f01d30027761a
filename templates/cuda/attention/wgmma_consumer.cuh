// SPDX-License-Identifier: Apache-2.0
// The consumer role: one warpgroup computes 64 rows of O. Per step of kBlockN keys: S = Q K^T, mask on boundary steps only,
// softmax, P rounded to 16 bits in registers, O += P V. S, P and O never leave registers.
//
// With kOverlap the products Q K of one step and P V of the step before are issued together, and the softmax runs while
// P V is still in flight. With kPingPong the warpgroups take turns in issuing, so that one's softmax meets the other's products.
#pragma once

#include "cuda/attention/kv_pipeline.cuh"
#include "cuda/attention/lazy_softmax.cuh"
#include "cuda/attention/tile_stream.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/pack.cuh"
#include "cuda/ptx/wgmma_fence.cuh"
#include "generated/wgmma.cuh"

namespace attune {

using Scores = float[kBlockN / 2];             // (64, kBlockN) over the warpgroup
using Probabilities = unsigned[kBlockN / 4];   // (64, kBlockN), two 16-bit values each: the A operand of P V
using Output = float[kHeadDimV / 2];           // (64, kHeadDimV)

// Accumulator element i of a thread stands in row half (i / 2) % 2 and column 8 (i / 4) + 2 (lane % 4) + i % 2.
template <int kCount>
__device__ __forceinline__ void mask_scores(float (&s)[kCount], const VisibleColumns (&rows)[2], int first_column) {
  const int origin = first_column + 2 * (threadIdx.x % 4);
  const int first[2] = {rows[0].first - origin, rows[1].first - origin};
  const int last[2] = {rows[0].last - origin, rows[1].last - origin};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int column = i / 4 * 8 + i % 2;
    const int half = i / 2 % 2;
    if (column > last[half]) s[i] = kMaskedScore;
    if constexpr (kHasLeftLimit) {
      if (column < first[half]) s[i] = kMaskedScore;
    }
  }
}

// An accumulator pair is, rounded, an A operand register of the next product: no data moves between lanes.
__device__ __forceinline__ void round_probabilities(const Scores& s, Probabilities& p) {
#pragma unroll
  for (int i = 0; i < kBlockN / 4; ++i) p[i] = pack_pair<kDtypeQ>(s[2 * i], s[2 * i + 1]);
}

__device__ __forceinline__ void rescale(Output& o, const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kHeadDimV / 2; ++i) o[i] *= factor[i / 2 % 2];
}

class WgmmaConsumer {
 public:
  __device__ __forceinline__ WgmmaConsumer(const AttentionArgs& args, unsigned shared, int warpgroup)
      : args_(args),
        shared_(shared),
        warpgroup_(warpgroup),
        leader_(threadIdx.x % kWarpgroupThreads == 0),
        headroom_(kRescaleThreshold / args.softmax_scale_log2),
        q_descriptor_(wgmma_descriptor(shared + kLayout.q + warpgroup * kLayout.q_bytes, 0)) {
    if constexpr (kPingPong) {
      if (warpgroup == 0) named_barrier_arrive(kBarrierTurn, 2 * kWarpgroupThreads);  // the first turn is free
    }
  }

  // O of one tile, not yet divided by the row sums. `row` is this thread's first row, its second is row + 8.
  __device__ __forceinline__ void attend(const PrefillTile& tile, unsigned parity, int row, Output& o, RowStats* rows) {
    const VisibleColumns columns[2] = {visible_columns(args_, row), visible_columns(args_, row + 8)};
    const int first_row = tile.first_row + warpgroup_ * kWarpgroupRows;
    // Rows past seqlen_q count as rows here: a ragged warpgroup should not take the masked path for their sake.
    const BlockRange range = visible_blocks<kBlockN>(args_, first_row, first_row + kWarpgroupRows);
    Scores s;
    Probabilities p;
#pragma unroll
    for (int i = 0; i < kHeadDimV / 2; ++i) o[i] = 0.f;

    int block = tile.last_block;
    mbarrier_wait(shared_ + kLayout.q_full + 8 * warpgroup_, parity, "q_full");
    {
      const int k_slot = acquire_k();
      issue_qk(s, k_slot);
      wgmma_wait<0>();
      wgmma_pin(s);
      release_k(k_slot, block == tile.first_block);
    }
    if (range.needs_mask(block)) mask_scores(s, columns, block * kBlockN);
    softmax_first(s, rows, args_.softmax_scale_log2);
    round_probabilities(s, p);

#pragma unroll 1
    for (--block; block >= tile.first_block; --block) {
      float factor[2];
      const bool last = block == tile.first_block;
      if constexpr (kOverlap) {
        const int k_slot = acquire_k();
        wait_turn();
        issue_qk(s, k_slot);
        const int v_slot = acquire_v();
        issue_pv(o, p, v_slot);
        pass_turn();
        wgmma_wait<1>();
        wgmma_pin(s);
        release_k(k_slot, last);
        if (range.needs_mask(block)) mask_scores(s, columns, block * kBlockN);
        const bool grew = softmax_next(s, rows, args_.softmax_scale_log2, headroom_, factor);
        wgmma_wait<0>();
        wgmma_pin(o);
        release_v(v_slot);
        round_probabilities(s, p);
        if (grew) rescale(o, factor);
      } else {
        multiply_pv(o, p);
        const int k_slot = acquire_k();
        issue_qk(s, k_slot);
        wgmma_wait<0>();
        wgmma_pin(s);
        release_k(k_slot, last);
        if (range.needs_mask(block)) mask_scores(s, columns, block * kBlockN);
        const bool grew = softmax_next(s, rows, args_.softmax_scale_log2, headroom_, factor);
        round_probabilities(s, p);
        if (grew) rescale(o, factor);
      }
    }
    multiply_pv(o, p);
  }

 private:
  __device__ __forceinline__ void issue_qk(Scores& s, int slot) {
    wgmma_fence();
    wgmma_qk(s, q_descriptor_, wgmma_descriptor(shared_ + kLayout.k + slot * kLayout.k_slot_bytes, 0));
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_pv(Output& o, Probabilities& p, int slot) {
    wgmma_fence();
    wgmma_pv(o, p, wgmma_descriptor(shared_ + kLayout.v + slot * kLayout.v_slot_bytes, kBlockN * kPanelRowBytes));
    wgmma_commit();
  }

  __device__ __forceinline__ void multiply_pv(Output& o, Probabilities& p) {
    const int slot = acquire_v();
    issue_pv(o, p, slot);
    wgmma_wait<0>();
    wgmma_pin(o);
    release_v(slot);
  }

  __device__ __forceinline__ int acquire_k() {
    const int slot = cursors_.k.slot;
    mbarrier_wait(shared_ + kLayout.k_full + 8 * slot, cursors_.k.parity, "k_full");
    cursors_.k.advance();
    return slot;
  }

  __device__ __forceinline__ int acquire_v() {
    const int slot = cursors_.v().slot;
    mbarrier_wait(shared_ + kLayout.v_full + 8 * slot, cursors_.v().parity, "v_full");
    cursors_.v().advance();
    return slot;
  }

  __device__ __forceinline__ void release_k(int slot, bool q_too) {
    if (!leader_) return;
    mbarrier_arrive(shared_ + kLayout.k_empty + 8 * slot);
    if (q_too) mbarrier_arrive(shared_ + kLayout.q_empty + 8 * warpgroup_);
  }

  __device__ __forceinline__ void release_v(int slot) {
    if (leader_) mbarrier_arrive(shared_ + kLayout.v_empty + 8 * slot);
  }

  __device__ __forceinline__ void wait_turn() {
    if constexpr (kPingPong) named_barrier_sync(kBarrierTurn + warpgroup_, 2 * kWarpgroupThreads);
  }

  __device__ __forceinline__ void pass_turn() {
    if constexpr (kPingPong) {
      const int next = warpgroup_ + 1 == kWarpgroups ? 0 : warpgroup_ + 1;
      named_barrier_arrive(kBarrierTurn + next, 2 * kWarpgroupThreads);
    }
  }

  const AttentionArgs& args_;
  unsigned shared_;
  int warpgroup_;
  bool leader_;
  float headroom_;
  unsigned long long q_descriptor_;
  KvCursors cursors_;
};

}  // namespace attune
