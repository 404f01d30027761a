// SPDX-License-Identifier: Apache-2.0
// The two products of a step as one warpgroup issues them, S = Q K^T and O += P V, with the
// barriers around them: slots of K and V are waited for and given back, and warpgroups take turns.
// Used by the consumers of prefill_sm90 (wgmma_consumer.cuh) and prefill_sm90_fp8
// (fp8_consumer.cuh), which put the softmax between them. S, P and O never leave registers.
//
// With kOverlap the products Q K of one step and P V of the step before are issued together, and
// the softmax runs while P V is still in flight. With kPingPong the warpgroups take turns in
// issuing, so that one's softmax meets the other's products.
#pragma once

#include "cuda/attention/kv_pipeline.cuh"
#include "cuda/attention/lazy_softmax.cuh"
#include "cuda/attention/tile_stream.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/ptx/wgmma_fence.cuh"
#include "generated/wgmma.cuh"

namespace attune {

using Scores = float[kBlockN / 2];  // (64, kBlockN) over the warpgroup
// (64, kBlockN), two or four values in a word: the A operand of P V
using Probabilities = unsigned[kBlockN * kOperandBytes / 8];
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

__device__ __forceinline__ void rescale(Output& o, const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kHeadDimV / 2; ++i) o[i] *= factor[i / 2 % 2];
}

class WgmmaProducts {
 public:
  __device__ __forceinline__ WgmmaProducts(unsigned shared, int warpgroup)
      : shared_(shared),
        warpgroup_(warpgroup),
        q_descriptor_(wgmma_descriptor<kLayout.row_qk>(
            shared + kLayout.q + warpgroup * kLayout.q_bytes, 0)) {
    if constexpr (kPingPong) {
      if (warpgroup == 0)
        named_barrier_arrive(kBarrierTurn, 2 * kWarpgroupThreads);  // the first turn is free
    }
  }

  __device__ __forceinline__ void wait_q(unsigned parity) {
    mbarrier_wait(shared_ + kLayout.q_full + 8 * warpgroup_, parity, "q_full");
  }

  // S of the first step of a tile.
  __device__ __forceinline__ void first(bool last_step, Scores& s) {
    wait_k();
    issue_qk(s);
    wgmma_wait<0>();
    wgmma_pin(s);
    release_k(last_step);
  }

  // S of this step and O += P V of the one before: with kOverlap P V is still in flight afterwards,
  // else it came first.
  __device__ __forceinline__ void multiply(bool last_step, Scores& s, Probabilities& p, Output& o) {
    if constexpr (!kOverlap) {
      last(o, p);
      finish(o);
    }
    wait_k();
    wait_turn();
    issue_qk(s);
    if constexpr (kOverlap) {
      last(o, p);
      pass_turn();
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    wgmma_pin(s);
    release_k(last_step);
  }

  // Issues O += P V; after the last step of a tile it is the only product left.
  __device__ __forceinline__ void last(Output& o, Probabilities& p) {
    wait_v();
    wgmma_fence();
    wgmma_pv(o, p, wgmma_descriptor<kLayout.row_v>(v_tile(), kBlockN * kPanelRowBytes));
    wgmma_commit();
  }

  // Waits for the P V in flight.
  __device__ __forceinline__ void finish(Output& o) {
    wgmma_wait<0>();
    wgmma_pin(o);
    release_v();
  }

 private:
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
    wgmma_qk(s, q_descriptor_, wgmma_descriptor<kLayout.row_qk>(k_tile(), 0));
    wgmma_commit();
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

  unsigned shared_;
  int warpgroup_;
  unsigned long long q_descriptor_;
  KvCursors cursors_;
  int ring_k_slot_ = 0;
  int ring_v_slot_ = 0;
};

}  // namespace attune
