// SPDX-License-Identifier: Apache-2.0
// Handles score programs that add a term of the head and of the distance between key and row
// (relative bias, ALiBi). The term, in the unit of q.k, is loaded into the accumulators before Q
// K^T is added, so the softmax has no extra work. A step of a tile has one value per diagonal, so
// few values. The three idle warps of the producing warpgroup compute them for each slot of K:
//
//   producer, one thread: wait k_empty, publish the step, arrive on its barrier; TMA -> k_full
//   idle warps:           wait for the slot's barrier, write the pairs, arrive on k_full
//   consumers:            wait k_full, load pairs into accumulators, wgmma, arrive on k_empty
//   at the end:           the producer publishes a step without a head
//
// Layout: shared/layouts/score_stage_layout.h.
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/score_functions.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/sm90/kv_pipeline.cuh"
#include "cuda/sm90/score_loads.cuh"
#include "cuda/sm90/sm90_layout.cuh"
#include "cuda/sm90/tile_rows.cuh"
#include "generated/score_program.h"
#include "shared/layouts/score_stage_layout.h"

namespace attune {

static_assert(kPackHeads == 1, "rows of several heads share no diagonals");
static_assert(kScoreKeepsUnits, "what is added to q.k has its unit");

constexpr int kDiagonalBytes = diagonal_bytes(kBlockM, kBlockN);  // per slot
constexpr int kDiagonalPairs = diagonals_offset(kLayout.bytes);
constexpr int kDiagonalPlaces = kDiagonalPairs + kLayout.k_slots * kDiagonalBytes;
constexpr int kDiagonalBarriers = kDiagonalPlaces + kLayout.k_slots * kDiagonalPlaceBytes;
static_assert(kDiagonalPairs + diagonals_bytes(kBlockM, kBlockN, kLayout.k_slots) <= 232448,
              "shared memory of one block with the diagonals of its steps exceeds 227 KB");

constexpr unsigned kNoHead = ~0u;

__device__ __forceinline__ void init_diagonal_barriers(unsigned shared) {
  for (int i = 0; i < kLayout.k_slots; ++i) mbarrier_init(shared + kDiagonalBarriers + 8 * i, 1);
}

// Publishes which diagonals the idle warps must compute for a slot. Called by the producer.
__device__ __forceinline__ void tell_diagonals(unsigned shared, int slot, int key, int row,
                                               unsigned head, int batch) {
  store_shared_16(shared + kDiagonalPlaces + kDiagonalPlaceBytes * slot,
                  {{static_cast<unsigned>(key), static_cast<unsigned>(row), head,
                    static_cast<unsigned>(batch)}});
  mbarrier_arrive(shared + kDiagonalBarriers + 8 * slot);
}

// Returns the term of the diagonal kv_idx - q_idx. It depends only on this distance, so `q_idx` may
// be any row.
__device__ __forceinline__ float on_diagonal(const ScoreArgs& args, float unit, int batch, int head,
                                             int kv_head, int q_idx, int kv_idx) {
  const ScoreHead on_head = score_head(args, unit, batch, head, kv_head);
  const ScoreRow on_row = score_row(args, on_head, batch, head, kv_head, q_idx);
  const ScoreColumn column = score_column(args, on_head, batch, head, kv_head, kv_idx);
  return score_element(args, on_head, on_row, column, 0.f, batch, head, kv_head, q_idx, kv_idx);
}

// Computes the diagonals of slot after slot, until a step has no head. Runs in the idle warps.
__device__ __forceinline__ void make_diagonals(const KernelParts& parts, unsigned shared) {
  constexpr int kMakers = 32 * kIdleWarps;
  constexpr int kEach = (kBlockM + kBlockN - 1 + kMakers - 1) / kMakers;
  const ScoreArgs& scores = parts.scores;
  const float unit = parts.base.softmax_scale;
  const int maker = static_cast<int>(threadIdx.x) - 32;
  wait_for_prior_grid();
  SlotCursor<kLayout.k_slots> cursor;
#pragma unroll 1
  while (true) {
    const int slot = cursor.slot();
    mbarrier_wait(shared + kDiagonalBarriers + 8 * slot, cursor.parity(), "diagonals");
    const Vector16 place = load_shared_16(shared + kDiagonalPlaces + kDiagonalPlaceBytes * slot);
    if (place.word[2] == kNoHead) return;
    const int head = static_cast<int>(place.word[2]);
    const int q_idx = scores.q_position0 + static_cast<int>(place.word[1]) + kBlockM - 1;
    const int key = scores.kv_position0 + static_cast<int>(place.word[0]) + maker;
    const unsigned pairs = shared + kDiagonalPairs + slot * kDiagonalBytes + 8 * maker;
    float value[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      value[i] = on_diagonal(scores, unit, scores.batch0 + static_cast<int>(place.word[3]),
                             scores.head0 + head, scores.kv_head0 + head / kGqaRatio, q_idx,
                             key + i * kMakers);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int entry = maker + i * kMakers;
      if (entry >= kBlockM + kBlockN) continue;
      store_shared_word(pairs + 8 * i * kMakers, __float_as_int(value[i]));
      if (entry > 0) store_shared_word(pairs + 8 * i * kMakers - 4, __float_as_int(value[i]));
    }
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, shared + kLayout.k_full + 8 * slot);
    cursor.advance();
  }
}

// Returns the base of a consumer thread's first pair: the pair's address in a slot is this base +
// k_full * kDiagonalBytes / 8.
__device__ __forceinline__ unsigned diagonal_base(unsigned shared, int warpgroup) {
  const int thread = threadIdx.x % kWarpgroupThreads;
  const int row = warpgroup * kWarpgroupRows + accumulator_row(thread);
  const int entry = thread % 4 * 2 + kBlockM - 1 - row;
  return shared + kDiagonalPairs + 8 * entry - (shared + kLayout.k_full) * (kDiagonalBytes / 8);
}

// Loads the pairs of one step into `s`. The two rows of a thread read the same pairs, shifted by
// one group of 8 columns.
template <int kCount>
__device__ __forceinline__ void load_diagonals(unsigned first, unsigned k_full,
                                               float (&s)[kCount]) {
  const unsigned at = first + k_full * (kDiagonalBytes / 8);
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    load_shared_pair(at + 16 * i, &s[i], &s[i + 1]);
    load_shared_pair(at + 16 * i - 64, &s[i + 2], &s[i + 3]);
  }
}

// Adds diagonals to scores that are computed again, which is rare. It uses a loop and local memory,
// so that it takes no registers from the steps around it.
template <int kCount>
__device__ __forceinline__ void add_diagonals(const KernelParts& parts, int batch, int head,
                                              int first_row, int first_key, float (&s)[kCount]) {
  const ScoreArgs& scores = parts.scores;
  const int thread = reread_thread_index() % kWarpgroupThreads;
  const int q_idx = scores.q_position0 + first_row + accumulator_row(thread);
  const int kv_idx = scores.kv_position0 + first_key + thread % 4 * 2;
  float held[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) held[i] = s[i];
#pragma unroll 1
  for (int i = 0; i < kCount; ++i)
    held[i] += on_diagonal(scores, parts.base.softmax_scale, scores.batch0 + batch,
                           scores.head0 + head, scores.kv_head0 + head / kGqaRatio,
                           q_idx + i / 2 % 2 * 8, kv_idx + i / 4 * 8 + i % 2);
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = held[i];
}

}  // namespace attune
