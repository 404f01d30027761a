// SPDX-License-Identifier: Apache-2.0
// What the mask program shows of blocks of keys, for the step that lists them (block_lists.cuh). A warp takes one cell after the other:
// a group of rows and a block of keys. The program's ranges over the cell decide most of them (generator/core/score/range_text.hpp);
// the others are looked at element by element, until one is seen and one is hidden. Both ways are exact.
#pragma once

#include "cuda/attention/block_lists.cuh"
#include "cuda/attention/score_ranges.cuh"
#include "generated/mask_program.h"
#include "generated/mask_ranges.h"

namespace attune {

constexpr int kListThreads = kMapThreads;

// Element by element, until the answer cannot change. A lane has every 32nd key, so that what the program reads of a row is read once
// for all keys; where rows end amid a few, the last one is looked at again.
__device__ __forceinline__ Shown look_at(const ScoreArgs& scores, const KeyCell& cell) {
  constexpr int kRowsBetweenVotes = 8;
  constexpr int kKeysOfLane = (kBlockN + 31) / 32;
  const int batch = scores.batch0 + cell.batch, head = scores.head0 + cell.head;
  const int kv_head = scores.kv_head0 + cell.head / kGqaRatio;
  const int first_key = cell.first_key + static_cast<int>(threadIdx.x % 32);
  const MaskHead on_head = mask_head(scores, batch, head, kv_head);
  const auto kv_idx = [&](int j) {
    return scores.kv_position0 + min(first_key + 32 * j, cell.last_key);
  };
  MaskColumn columns[kKeysOfLane];
#pragma unroll
  for (int j = 0; j < kKeysOfLane; ++j)
    columns[j] = mask_column(scores, on_head, batch, head, kv_head, kv_idx(j));
  bool any = false, all = true;
#pragma unroll 1
  for (int row = cell.first_row; row <= cell.last_row; row += kRowsBetweenVotes) {
#pragma unroll
    for (int i = 0; i < kRowsBetweenVotes; ++i) {
      const int q_idx = scores.q_position0 + min(row + i, cell.last_row);
      const MaskRow on_row = mask_row(scores, on_head, batch, head, kv_head, q_idx);
#pragma unroll
      for (int j = 0; j < kKeysOfLane; ++j) {
        const bool exists = first_key + 32 * j <= cell.last_key;
        const bool shown = mask_element(scores, on_head, on_row, columns[j], batch, head, kv_head,
                                        q_idx, kv_idx(j));
        any = any || (shown && exists);
        all = all && (shown || !exists);
      }
    }
    if (__any_sync(~0u, any) && !__all_sync(~0u, all)) return {true, false};
  }
  return {__any_sync(~0u, any) != 0, __all_sync(~0u, all) != 0};
}

// Called by all lanes of a warp.
__device__ __forceinline__ Shown shown_in(const ScoreArgs& scores, const KeyCell& cell) {
  const int head = scores.head0 + cell.head, kv_head = scores.kv_head0 + cell.head / kGqaRatio;
  const IntRange q_idx{scores.q_position0 + cell.first_row, scores.q_position0 + cell.last_row};
  const IntRange kv_idx{scores.kv_position0 + cell.first_key, scores.kv_position0 + cell.last_key};
  const BoolRange range = mask_range(scores, int_range(scores.batch0 + cell.batch), int_range(head),
                                     int_range(kv_head), q_idx, kv_idx);
  if (range.lo == range.hi) return {range.hi, range.lo};
  return look_at(scores, cell);
}

// The step, for threads of a whole block.
template <class Tiles, class FirstKey>
__device__ __forceinline__ void list_blocks(const ScoreArgs& scores, const AttentionArgs& args,
                                            const BlockMapArgs& map, const FirstKey& first_key) {
  write_list<Tiles>(
      args, map, first_key, [&](const MapPlace& place, int key, int blocks, int* found) {
        for (int i = threadIdx.x / 32; i < blocks; i += kListThreads / 32) {
          const int entry =
              groups_that_see<Tiles>(args, place, key + i * kBlockN,
                                     [&](const KeyCell& cell) { return shown_in(scores, cell); });
          if (threadIdx.x % 32 == 0) found[i] = entry;
        }
      });
}

}  // namespace attune
