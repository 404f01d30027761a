// SPDX-License-Identifier: Apache-2.0
// Issues the two products of a step, S = Q K^T and O += P V, for one warpgroup. It also waits for
// slots of K and V, releases them, and lets warpgroups take turns. The consumers of prefill_sm90
// (wgmma_consumer.cuh) and prefill_sm90_fp8 (fp8_consumer.cuh) use it, and run the softmax between
// the two products. S, P and O never leave registers.
//
// With kOverlap, Q K^T of one step and P V of the previous step are issued together, and the
// softmax runs while P V is still in flight. With kPingPong the warpgroups issue in turn, so that
// the softmax of one overlaps the products of the other.
//
// The calls of a tile, in order. A step is "hidden" if this warpgroup sees none of its keys:
//
// | call                    | per    | state after the call                                       |
// |-------------------------|--------|------------------------------------------------------------|
// | wait_q                  | tile   | Q has arrived                                              |
// | skip_hidden_steps(n)    | tile   | K and V of the first n steps are released                  |
// | multiply_first(s)       | tile   | S of the first step is complete                            |
// | skip_hidden_v           | tile   | with kOverlap: V of the n-th hidden step is released;      |
// |                         |        | only if n > 0                                              |
// | await_operands          | step   | K of the next step and V of this one have arrived          |
// | multiply_next(s, p, o)  | step   | S of the next step is complete; O += P V of this step      |
// |                         |        | is in flight (kOverlap) or complete                        |
// | wait_pv(o)              | step   | with kOverlap: O is complete, V is released                |
// | operands_arrived        | step   | true if await_operands may be skipped                      |
// | issue_last_pv(o, p, n)  | tile   | the last O += P V is in flight; n hidden steps are         |
// |                         |        | released after it                                          |
// | wait_pv(o)              | tile   | O is complete, V is released                               |
//
// After a wait_pv, overwrite_output() lets the next P V begin at 0 instead of adding to O.
#pragma once

#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma_fence.cuh"
#include "cuda/sm90/k_parts.cuh"  // where kKParts, else none/
#include "cuda/sm90/kv_pipeline.cuh"
#include "cuda/sm90/lazy_softmax.cuh"
#include "cuda/sm90/score_diagonals.cuh"  // where kDiagonalTerms, else none/
#include "cuda/sm90/tile_stream.cuh"
#include "generated/wgmma.cuh"

namespace attune {

using Scores = float[kBlockN / 2];  // (64, kBlockN) over the warpgroup
// (64, kBlockN), two or four values in a word: the A operand of P V
using Probabilities = unsigned[kBlockN * kOperandBytes / 8];
using Output = float[kHeadDimV / 2];  // (64, kHeadDimV)

// Without a causal mask or a window, only the first step can need a mask: it contains the ragged
// end of the keys.
constexpr bool kMasksInside = kHasLeftLimit || kHasRightLimit;

// True if a step of a tile may be hidden from one of the tile's warpgroups.
constexpr bool kSkipsSteps = kMasksInside && kBlockN < kTileRows;

// The blocks of a tile that a warpgroup visits, last to first. They exclude blocks that are hidden
// from the warpgroup, but there is always at least one.
struct OwnSteps {
  int first;
  int last;
};

__device__ __forceinline__ OwnSteps own_steps(const PrefillTile& tile, const BlockRange& range) {
  if constexpr (kMaskProgram || !kSkipsSteps) return {tile.first_block, tile.last_block};
  const int last = max(tile.first_block, min(tile.last_block, range.end - 1));
  return {max(tile.first_block, min(last, range.begin)), last};
}

// Masks the scores of a block. Accumulator element i of a thread is in row half (i / 2) % 2 and
// column 8 (i / 4) + 2 (lane % 4) + i % 2. A block at one end of the visible keys is masked only at
// that end. Block 0 begins at key `first_key`.
template <int kCount>
__device__ __forceinline__ void mask_scores(const AttentionArgs& args, float (&s)[kCount],
                                            int first_row, int block, const BlockRange& range,
                                            int first_key = 0) {
  const int thread = reread_thread_index() % kWarpgroupThreads;
  const int row = first_row + thread_row(thread);
  const int origin = first_key + block * kBlockN + 2 * (thread % 4);
  const KeyInterval<int> upper = visible_keys(args, row);
  const KeyInterval<int> lower = visible_keys(args, row + kNextRow);
  if (block >= range.full_end) {
    const int last[2] = {upper.last - origin, lower.last - origin};
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i / 4 * 8 + i % 2 > last[i / 2 % 2]) s[i] = hidden_score();
  }
  if (kHasLeftLimit && block < range.full_begin) {
    const int first[2] = {upper.first - origin, lower.first - origin};
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i / 4 * 8 + i % 2 < first[i / 2 % 2]) s[i] = hidden_score();
  }
}

__device__ __forceinline__ void rescale(Output& o, const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kHeadDimV / 2; ++i) o[i] *= factor[i / 2 % 2];
}

class WgmmaProducts {
  using KWalk = SlotWalk<kLayout.k_slots, kLayout.k_slot_bytes>;
  using VWalk = SlotWalk<(kKvRing > 0 ? 1 : kLayout.v_slots), kLayout.v_slot_bytes>;

  // With one ring, k_ goes through the slots of both K and V.
  __device__ __forceinline__ auto& v() {
    if constexpr (kKvRing > 0) {
      return k_;
    } else {
      return own_v_;
    }
  }

 public:
  __device__ __forceinline__ WgmmaProducts(unsigned shared, int warpgroup)
      : shared_(shared),
        warpgroup_(warpgroup),
        q_(wgmma_descriptor_low(shared + kLayout.q + warpgroup * kLayout.q_bytes, 0)),
        k_(shared + kLayout.k_full, wgmma_descriptor_low(shared + kLayout.k, 0)),
        own_v_(shared + kLayout.v_full, wgmma_descriptor_low(shared + kLayout.v, kPanelOfV)),
        diagonals_(diagonal_base(shared, warpgroup)),
        lane_(threadIdx.x % 32) {
    if constexpr (kPingPong) {
      if (warpgroup == 0)
        named_barrier_arrive(kBarrierTurn, 2 * kWarpgroupThreads);  // the first turn is free
    }
  }

  __device__ __forceinline__ void wait_q(unsigned parity) {
    mbarrier_wait(shared_ + kLayout.q_full + 8 * warpgroup_, parity, "q_full");
  }

  __device__ __forceinline__ void multiply_first(bool last_step, Scores& s) {
    await_k();
    load_diagonals(diagonals_, k_.full(), s);
    issue_qk(s);
    release_k_parts<0>(k_empty_, lane_);
    wgmma_wait<0>();
    wgmma_pin(s);
    release_k(last_step);
  }

  // Releases K and V of `steps` hidden steps. With kOverlap, V of the last hidden step is loaded
  // after K of the next step, so skip_hidden_v() releases it.
  __device__ __forceinline__ void skip_hidden_steps(int steps) {
    if constexpr (!kSkipsSteps) return;
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      skip_k();
      if (!kOverlap || i > 0) skip_v();
      wait_turn();
      pass_turn();
    }
  }

  __device__ __forceinline__ void skip_hidden_v() {
    if constexpr (kSkipsSteps && kOverlap) skip_v();
  }

  // Issues the last P V, then skips the hidden steps after it. wait_pv() releases the last V that
  // this takes.
  __device__ __forceinline__ void issue_last_pv(Output& o, Probabilities& p, int hidden_steps) {
    constexpr bool kKeyFirst = kOverlap && kKvRing > 0;  // K precedes the previous step's V
    if (kSkipsSteps && kKeyFirst && hidden_steps > 0) skip_k();
    issue_pv(o, p);
    if constexpr (!kSkipsSteps) return;
#pragma unroll 1
    for (int i = 0; i < hidden_steps; ++i) {
      wait_turn();
      pass_turn();
      wait_pv(o);
      if (!kKeyFirst || i + 1 < hidden_steps) skip_k();
      await_v();
      v_empty_ = v().empty();
      v().advance();
    }
  }

  // Returns true if await_operands() need not be called. Call it well before await_operands(), so
  // that its latency is hidden.
  __device__ __forceinline__ bool operands_arrived() {
    bool all = mbarrier_test(k_.full(), k_.parity());
    if constexpr (kKvRing == 0) all = mbarrier_test(own_v_.full(), own_v_.parity()) && all;
    return all;
  }

  // Waits for K of the next step if `more`, and for V of this step. With one ring, issue_pv() waits
  // for V instead.
  __device__ __forceinline__ void await_operands(bool more) {
    if (more) await_k();
    if constexpr (kKvRing == 0 && !kWideHeads) await_v();
  }

  // Multiplies Q K^T of the next step and P V of this one; without kOverlap, P V comes first.
  __device__ __forceinline__ void multiply_next(bool last_step, Scores& s, Probabilities& p,
                                                Output& o) {
    if constexpr (!kOverlap) {
      issue_pv(o, p);
      wait_pv(o);
      if constexpr (kKvRing > 0) await_k();  // K comes after V in the ring: not waited for yet
    }
    load_diagonals(diagonals_, k_.full(), s);
    wait_turn();
    issue_qk(s);
    if constexpr (kOverlap) {
      issue_pv(o, p);
      pass_turn();
      release_k_parts<1>(k_empty_, lane_);
      wgmma_wait<1>();
    } else {
      release_k_parts<0>(k_empty_, lane_);
      wgmma_wait<0>();
    }
    wgmma_pin(s);
    release_k(last_step);
  }

  __device__ __forceinline__ void overwrite_output() { adds_ = 0; }

  // Sets the number of keys of the next P V, the first of a tile. Only over caches.
  __device__ __forceinline__ void expect_values(int keys) { values_ = keys; }

  __device__ __forceinline__ void wait_pv(Output& o) {
    wgmma_wait<0>();
    wgmma_pin(o);
    mbarrier_arrive_if(lane_ == 0, v_empty_);
  }

 private:
  static constexpr unsigned kPanelOfV = kBlockN * kPanelRowBytes;
  // With one ring, k_ goes through the slots of V too, but its descriptors have no leading offset,
  // which V needs: the bytes of one panel. Adding this to a descriptor sets it.
  static constexpr unsigned kVInRing = kKvRing > 0 ? kPanelOfV / 16 << 16 : 0;

  __device__ __forceinline__ void issue_qk(Scores& s) {
    if constexpr (kKParts > 1) return issue_qk_parts(s, q_, k_, &k_empty_);
    wgmma_fence();
    wgmma_qk(s, wgmma_descriptor<kLayout.row_qk>(q_), wgmma_descriptor<kLayout.row_qk>(k_.tile()));
    wgmma_commit();
    k_empty_ = k_.empty();
    k_.advance();
  }

  __device__ __forceinline__ void issue_pv(Output& o, Probabilities& p) {
    if constexpr (kKvRing > 0 || kWideHeads) await_v();
    if (kCacheArgs && values_ < kBlockN) clear_values();
    wgmma_fence();
    wgmma_pv(o, p, wgmma_descriptor<kLayout.row_v>(v().tile() + kVInRing), adds_);
    adds_ = 1;
    wgmma_commit();
    v_empty_ = v().empty();
    v().advance();
  }

  // Clears V behind the last key, which may be NaN: P = 0 does not undo it.
  // Each warpgroup clears it for itself: others write the same.
  __device__ __forceinline__ void clear_values() {
    const unsigned tile = (v().tile() & 0x3fffu) << 4;
    constexpr int kChunks = kPanelRowBytes / 16;
    const int thread = reread_thread_index() % kWarpgroupThreads;
    const int first = max(values_, 0) * kChunks + thread;
#pragma unroll
    for (int panel = 0; panel < kLayout.panels_v; ++panel)
      for (int at = first; at < kBlockN * kChunks; at += kWarpgroupThreads)
        store_shared_16(tile + panel * kPanelOfV + at * 16, {{0, 0, 0, 0}});
    fence_proxy_async();
    named_barrier_sync(kBarrierWarpgroup + warpgroup_, kWarpgroupThreads);
    values_ = kBlockN;
  }

  __device__ __forceinline__ void skip_k() {
    skip_k_parts(k_, lane_);
    await_k();
    mbarrier_arrive_if(lane_ == 0, k_.empty());
    k_.advance();
  }

  __device__ __forceinline__ void skip_v() {
    await_v();
    mbarrier_arrive_if(lane_ == 0, v().empty());
    v().advance();
  }

  __device__ __forceinline__ void await_k() { mbarrier_wait(k_.full(), k_.parity(), "k_full"); }
  __device__ __forceinline__ void await_v() { mbarrier_wait(v().full(), v().parity(), "v_full"); }

  // Releases the slot of K, and with `q_too`, after the last step of a tile, also Q.
  __device__ __forceinline__ void release_k(bool q_too) {
    if constexpr (kDiagonalTerms) __syncwarp();  // all lanes have read the diagonals
    mbarrier_arrive_if(lane_ == 0, k_empty_);
    mbarrier_arrive_if(lane_ == 0 && q_too, shared_ + kLayout.q_empty + 8 * warpgroup_);
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

  unsigned shared_;
  int warpgroup_;
  unsigned q_;  // low half of its descriptor
  KWalk k_;
  VWalk own_v_;
  unsigned k_empty_ = 0;  // barriers of the slots in use
  unsigned v_empty_ = 0;
  int adds_ = 1;
  unsigned diagonals_;    // address of this thread's first pair
  int values_ = kBlockN;  // keys of the next V that exist
  int lane_;
};

}  // namespace attune
