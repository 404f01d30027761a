// SPDX-License-Identifier: Apache-2.0
// What a map of the caller's (shared/block_map.h) shows of blocks of keys, for the step that lists them (block_lists.cuh). A thread
// takes one block: it joins the granules that a tile's rows and the block's keys touch, so no tile depends on their size.
#pragma once

#include "cuda/attention/block_lists.cuh"
#include "cuda/attention/score_functions.cuh"

namespace attune {

constexpr int kListThreads = kGranuleThreads;

__device__ __forceinline__ Shown shown_in(const ScoreArgs& scores, const KeyCell& cell) {
  const ScoreCapture& granules = scores.captures[kMapCapture];
  const int first = (scores.kv_position0 + cell.first_key) / kGranuleKeys;
  const int last = (scores.kv_position0 + cell.last_key) / kGranuleKeys;
  const int last_row = (scores.q_position0 + cell.last_row) / kGranuleRows;
  int any = 0, all = kSeenWhole;
#pragma unroll 1
  for (int row = (scores.q_position0 + cell.first_row) / kGranuleRows; row <= last_row; ++row) {
    const void* line = capture_line<CaptureType::kUint8>(granules, scores.batch0 + cell.batch,
                                                         scores.head0 + cell.head, row);
#pragma unroll 4
    for (int key = first; key <= last; ++key) {
      const int granule = load_in_line<CaptureType::kUint8>(line, granules, 3, key);
      any |= granule;
      all &= granule;
    }
  }
  if constexpr (kMapHides) return {any != 0, all != 0};  // the map is the mask
  return {any != 0, all == kSeenWhole};
}

// The step, for threads of a whole block.
template <class Tiles, class FirstKey>
__device__ __forceinline__ void list_blocks(const ScoreArgs& scores, const AttentionArgs& args,
                                            const BlockMapArgs& map, const FirstKey& first_key) {
  write_list<Tiles>(
      args, map, first_key, [&](const MapPlace& place, int key, int blocks, int* found) {
        for (int i = threadIdx.x; i < blocks; i += kListThreads)
          found[i] =
              groups_that_see<Tiles>(args, place, key + i * kBlockN,
                                     [&](const KeyCell& cell) { return shown_in(scores, cell); });
      });
}

}  // namespace attune
