// SPDX-License-Identifier: Apache-2.0
// The consumer role: one warpgroup computes 64 rows of O. Per step of kBlockN keys: S = Q K^T, mask
// on boundary steps only, softmax, P rounded to 16 bits in registers, O += P V. S, P and O never
// leave registers.
//
// With kOverlap the products Q K of one step and P V of the step before are issued together, and
// the softmax runs while P V is still in flight. With kPingPong the warpgroups take turns in
// issuing, so that one's softmax meets the other's products.
#pragma once

#include "cuda/attention/kv_pipeline.cuh"
#include "cuda/attention/lazy_softmax.cuh"
#include "cuda/attention/recompute_scores.cuh"
#include "cuda/attention/tile_stream.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/ptx/wgmma_fence.cuh"
#include "generated/wgmma.cuh"

namespace attune {

using Scores = float[kBlockN / 2];  // (64, kBlockN) over the warpgroup
using Probabilities =
    unsigned[kBlockN / 4];            // (64, kBlockN), two 16-bit values each: the A operand of P V
using Output = float[kHeadDimV / 2];  // (64, kHeadDimV)

// Without a causal mask or a window only the first step, the ragged end of the keys, can need a
// mask.
constexpr bool kMasksInside = kHasLeftLimit || kHasRightLimit;

// First of the two rows that a thread of a warpgroup holds; the second is 8 further down.
__device__ __forceinline__ int accumulator_row(int thread) {
  return thread / 32 * 16 + thread % 32 / 4;
}

// Accumulator element i of a thread stands in row half (i / 2) % 2 and column 8 (i / 4) + 2 (lane %
// 4) + i % 2. A block at one end of the visible keys is masked at that end alone.
template <int kCount>
__device__ __forceinline__ void mask_scores(const AttentionArgs& args, float (&s)[kCount],
                                            int first_row, int block, const BlockRange& range) {
  const int thread = thread_index_anew() % kWarpgroupThreads;
  const int row = first_row + accumulator_row(thread);
  const int origin = block * kBlockN + 2 * (thread % 4);
  const VisibleColumns upper = visible_columns(args, row);
  const VisibleColumns lower = visible_columns(args, row + 8);
  if (block >= range.full_end) {
    const int last[2] = {upper.last - origin, lower.last - origin};
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i / 4 * 8 + i % 2 > last[i / 2 % 2]) s[i] = masked_score();
  }
  if (kHasLeftLimit && block < range.full_begin) {
    const int first[2] = {upper.first - origin, lower.first - origin};
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i / 4 * 8 + i % 2 < first[i / 2 % 2]) s[i] = masked_score();
  }
}

// An accumulator pair is, rounded, an A operand register of the next product: no data moves between
// lanes.
__device__ __forceinline__ void round_probabilities(const Scores& s, Probabilities& p) {
#pragma unroll
  for (int i = 0; i < kBlockN / 4; ++i) p[i] = pack<kDtypeQ>(s[2 * i], s[2 * i + 1]);
}

__device__ __forceinline__ void rescale(Output& o, const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kHeadDimV / 2; ++i) o[i] *= factor[i / 2 % 2];
}

class WgmmaConsumer {
 public:
  __device__ __forceinline__ WgmmaConsumer(const AttentionArgs& args, unsigned shared,
                                           int warpgroup)
      : args_(args),
        shared_(shared),
        warpgroup_(warpgroup),
        q_descriptor_(wgmma_descriptor(shared + kLayout.q + warpgroup * kLayout.q_bytes, 0)) {
    if constexpr (kPingPong) {
      if (warpgroup == 0)
        named_barrier_arrive(kBarrierTurn, 2 * kWarpgroupThreads);  // the first turn is free
    }
  }

  // O of one tile, not yet divided by the row sums; `rows` is complete, O only after finish().
  __device__ __forceinline__ void attend(const PrefillTile& tile, unsigned parity, Output& o,
                                         RowStats* rows) {
    const int first_row = tile.first_row + warpgroup_ * kWarpgroupRows;  // of the warpgroup
    // Rows past seqlen_q count as rows here: a ragged warpgroup should not take the masked path for
    // their sake.
    const BlockRange range = visible_blocks<kBlockN>(args_, first_row, first_row + kWarpgroupRows);
    Scores s;
    Probabilities p;
#pragma unroll
    for (int i = 0; i < kHeadDimV / 2; ++i) o[i] = 0.f;
    mbarrier_wait(shared_ + kLayout.q_full + 8 * warpgroup_, parity, "q_full");
    first_step(tile, first_row, range, s, p, rows);
#pragma unroll 1
    for (int block = tile.last_block - 1; block >= tile.first_block; --block) {
      multiply(block == tile.first_block, s, p, o);
      const bool masked = kMasksInside && range.needs_mask(block);
      if (masked) mask_scores(args_, s, first_row, block, range);
      float factor[2];
      float sum[2] = {0.f, 0.f};
      bool grew = kRowMax == 1 ? masked : row_max_grew(s, *rows, args_.softmax_scale_log2);
      if (grew) raise_row_max(s, rows, args_.softmax_scale_log2, factor);
      exponentiate(s, rows->max, args_.softmax_scale_log2, kRowMax == 1 ? sum : rows->sum);
      if constexpr (kOverlap) finish(o);
      round_probabilities(s, p);
      if constexpr (kRowMax == 1) {
        // Asked in masked steps too, so that the additions stay among the exponentials.
        const bool overflow = sums_overflow(sum);
        if (overflow && !masked) {
          redo_step(tile, first_row, block, s, p, rows, sum, factor);
          grew = true;
        }
        rows->sum[0] += sum[0];
        rows->sum[1] += sum[1];
      }
      if (grew) rescale(o, factor);
    }
    wait_v();
    issue_pv(o, p, v_tile());
  }

  // Waits for the last product of attend().
  __device__ __forceinline__ void finish(Output& o) {
    wgmma_wait<0>();
    wgmma_pin(o);
    release_v();
  }

 private:
  __device__ __forceinline__ void first_step(const PrefillTile& tile, int first_row,
                                             const BlockRange& range, Scores& s, Probabilities& p,
                                             RowStats* rows) {
    wait_k();
    issue_qk(s);
    wgmma_wait<0>();
    wgmma_pin(s);
    release_k(tile.last_block == tile.first_block);
    if (range.needs_mask(tile.last_block)) mask_scores(args_, s, first_row, tile.last_block, range);
    softmax_first(s, rows, args_.softmax_scale_log2);
    round_probabilities(s, p);
  }

  // S of this step and O += P V of the one before: with kOverlap P V is still in flight afterwards,
  // else it came first.
  __device__ __forceinline__ void multiply(bool last_step, Scores& s, Probabilities& p, Output& o) {
    if constexpr (!kOverlap) multiply_pv(o, p);
    wait_k();
    wait_turn();
    issue_qk(s);
    if constexpr (kOverlap) {
      wait_v();
      issue_pv(o, p, v_tile());
      pass_turn();
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    wgmma_pin(s);
    release_k(last_step);
  }

  // The rare case of row_max 1: the probabilities of this step again, under the true maximum of its
  // scores.
  __device__ __forceinline__ void redo_step(const PrefillTile& tile, int first_row, int block,
                                            Scores& s, Probabilities& p, RowStats* rows,
                                            float (&sum)[2], float (&factor)[2]) {
    recompute_scores(args_, tile, first_row, block, s);
    raise_row_max(s, rows, args_.softmax_scale_log2, factor);
    sum[0] = sum[1] = 0.f;
    exponentiate(s, rows->max, args_.softmax_scale_log2, sum);
    round_probabilities(s, p);
  }

  // The slots held: with one ring V is taken before K is given back, so the common cursor has moved
  // on.
  __device__ __forceinline__ int k_slot() { return kKvRing > 0 ? ring_k_slot_ : cursors_.k.slot(); }
  __device__ __forceinline__ int v_slot() {
    return kKvRing > 0 ? ring_v_slot_ : cursors_.v().slot();
  }
  __device__ __forceinline__ unsigned k_tile() {
    return shared_ + kLayout.k + k_slot() * kLayout.k_slot_bytes;
  }
  __device__ __forceinline__ unsigned v_tile() {
    return shared_ + kLayout.v + v_slot() * kLayout.v_slot_bytes;
  }

  __device__ __forceinline__ void issue_qk(Scores& s) {
    wgmma_fence();
    wgmma_qk(s, q_descriptor_, wgmma_descriptor(k_tile(), 0));
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_pv(Output& o, Probabilities& p, unsigned tile) {
    wgmma_fence();
    wgmma_pv(o, p, wgmma_descriptor(tile, kBlockN * kPanelRowBytes));
    wgmma_commit();
  }

  __device__ __forceinline__ void multiply_pv(Output& o, Probabilities& p) {
    wait_v();
    issue_pv(o, p, v_tile());
    finish(o);
  }

  __device__ __forceinline__ void wait_k() {
    mbarrier_wait(shared_ + kLayout.k_full + 8 * cursors_.k.slot(), cursors_.k.parity(), "k_full");
    ring_k_slot_ = cursors_.k.slot();
    if constexpr (kKvRing > 0) cursors_.k.advance();
  }

  __device__ __forceinline__ void wait_v() {
    mbarrier_wait(shared_ + kLayout.v_full + 8 * cursors_.v().slot(), cursors_.v().parity(),
                  "v_full");
    ring_v_slot_ = cursors_.v().slot();
    if constexpr (kKvRing > 0) cursors_.v().advance();
  }

  // Gives back the slot of K, and after the last step of a tile Q as well.
  __device__ __forceinline__ void release_k(bool q_too) {
    if (warp_leader()) {
      mbarrier_arrive(shared_ + kLayout.k_empty + 8 * k_slot());
      if (q_too) mbarrier_arrive(shared_ + kLayout.q_empty + 8 * warpgroup_);
    }
    if constexpr (kKvRing == 0) cursors_.k.advance();
  }

  __device__ __forceinline__ void release_v() {
    if (warp_leader()) mbarrier_arrive(shared_ + kLayout.v_empty + 8 * v_slot());
    if constexpr (kKvRing == 0) cursors_.v().advance();
  }

  __device__ __forceinline__ bool warp_leader() const { return thread_index_anew() % 32 == 0; }

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
  unsigned long long q_descriptor_;
  KvCursors cursors_;
  int ring_k_slot_ = 0;
  int ring_v_slot_ = 0;
};

}  // namespace attune
