// SPDX-License-Identifier: Apache-2.0
// Finds which blocks of keys a mask program leaves visible, for the step that lists them
// (block_lists.cuh). A cell is a group of rows and a block of keys; a warp takes one cell after the
// other. The program's ranges over a cell (generator/score/print/source_text.hpp) decide most
// cells. In other cells the warp evaluates the mask per element, until one is seen and one is
// hidden. Both ways are exact.
#pragma once

#include "cuda/parts/block_lists.cuh"
#include "cuda/parts/warp_ranges.cuh"
#include "generated/mask_program.h"
#include "generated/mask_ranges.h"

namespace attune {

// Evaluates the mask per element, until one is seen and one is hidden. A lane takes every 32nd key.
// kRowsAtOnce rows are evaluated together, so that the program's loads for these rows overlap.
// Indices past the last row or key are clamped to the last one.
__device__ __forceinline__ Shown look_at(const ScoreArgs& scores, const RowGroup& rows,
                                         const IntRange& keys) {
  constexpr int kRowsAtOnce = 4;
  const int batch = scores.batch0 + rows.batch, head = scores.head0 + rows.head;
  const int kv_head = scores.kv_head0 + rows.head / kGqaRatio;
  const int first_key = keys.lo + static_cast<int>(threadIdx.x % 32);
  const MaskHead on_head = mask_head(scores, batch, head, kv_head);
  bool any = false, all = true;
#pragma unroll 1
  for (int row = rows.first; row <= rows.last; row += kRowsAtOnce) {
    const auto q_idx = [&](int i) { return scores.q_position0 + min(row + i, rows.last); };
    MaskRow on_row[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i)
      on_row[i] = mask_row(scores, on_head, batch, head, kv_head, q_idx(i));
#pragma unroll 1
    for (int key = first_key; key < first_key + kBlockN; key += 32) {
      const int kv_idx = scores.kv_position0 + min(key, keys.hi);
      const MaskColumn column = mask_column(scores, on_head, batch, head, kv_head, kv_idx);
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        const bool shown = mask_element(scores, on_head, on_row[i], column, batch, head, kv_head,
                                        q_idx(i), kv_idx);
        any = any || shown;
        all = all && shown;
      }
    }
    if (__any_sync(~0u, any) && !__all_sync(~0u, all)) return {true, false};
  }
  return {__any_sync(~0u, any) != 0, __all_sync(~0u, all) != 0};
}

// Returns the visibility of a block of keys for a group of rows. All lanes of a warp call it.
// `keys` count from the call's first key.
__device__ __forceinline__ Shown shown_to(const ScoreArgs& scores, const RowGroup& rows,
                                          const MaskRowRanges& on_rows, const IntRange& keys) {
  const BoolRange range =
      mask_range(scores, on_rows, {scores.kv_position0 + keys.lo, scores.kv_position0 + keys.hi});
  if (range.lo == range.hi) return {range.hi, range.lo};
  return look_at(scores, rows, keys);
}

__device__ __forceinline__ MaskRowRanges ranges_of(const ScoreArgs& scores, const RowGroup& rows) {
  return mask_row_ranges(scores, int_range(scores.batch0 + rows.batch),
                         int_range(scores.head0 + rows.head),
                         int_range(scores.kv_head0 + rows.head / kGqaRatio),
                         {scores.q_position0 + rows.first, scores.q_position0 + rows.last});
}

template <>
struct BlockLister<false> {
  static constexpr int kThreads = kMapThreads;

  // Writes the list of a thread block; all its threads call it. Warps take blocks of keys in turn.
  template <class Tiles, class FirstKey>
  static __device__ __forceinline__ void write(const ScoreArgs& scores, const AttentionArgs& args,
                                               const BlockMapArgs& map, const FirstKey& first_key) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const auto look_up = [&](const MapPlace& place, int key, int blocks, int* found) {
#pragma unroll 1
      for (int i = threadIdx.x; i < blocks; i += kThreads) found[i] = 0;
      __syncthreads();
      for_each_group<Tiles>(args, place, [&](const RowGroup& rows, int group) {
        const MaskRowRanges on_rows = ranges_of(scores, rows);
#pragma unroll 1
        for (int i = warp; i < blocks; i += kThreads / 32) {
          const int first = key + i * kBlockN, last = min(first + kBlockN, args.seqlen_kv) - 1;
          const Shown shown = shown_to(scores, rows, on_rows, {first, last});
          if (lane == 0) found[i] |= group_bits(shown, group);
        }
      });
    };
    write_list<Tiles>(args, map, first_key, look_up);
  }
};

}  // namespace attune
