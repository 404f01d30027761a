// SPDX-License-Identifier: Apache-2.0
// Finds which blocks of keys are visible under a caller's map (shared/block_map.h), for the step
// that lists them (block_lists.cuh). A thread takes one block. It combines the granules (cells of
// the map) that the rows of a tile and the keys of the block touch. So tiles do not depend on the
// size of granules.
#pragma once

#include "cuda/parts/block_lists.cuh"
#include "cuda/parts/score_functions.cuh"

namespace attune {

__device__ __forceinline__ Shown shown_to(const ScoreArgs& scores, const RowGroup& rows,
                                          int first_key, int last_key) {
  const ScoreCapture& granules = scores.captures[kMapCapture];
  const int first = (scores.kv_position0 + first_key) / kGranuleKeys;
  const int last = (scores.kv_position0 + last_key) / kGranuleKeys;
  const int last_row = (scores.q_position0 + rows.last) / kGranuleRows;
  int any = 0, all = kSeenWhole;
#pragma unroll 1
  for (int row = (scores.q_position0 + rows.first) / kGranuleRows; row <= last_row; ++row) {
    const void* line = capture_line<CaptureType::kUint8>(granules, scores.batch0 + rows.batch,
                                                         scores.head0 + rows.head, row);
#pragma unroll 2
    for (int key = first; key <= last; ++key) {
      const int granule = load_in_line<CaptureType::kUint8>(line, granules, 3, key);
      any |= granule;
      all &= granule;
    }
  }
  if constexpr (kMapHides) return {any != 0, all != 0};  // the map is the mask
  return {any != 0, all == kSeenWhole};
}

template <>
struct BlockLister<true> {
  static constexpr int kThreads = kGranuleThreads;

  // Writes the list of a thread block; all its threads call it. A thread takes every kThreads-th
  // block of the list.
  template <class Tiles, class FirstKey>
  static __device__ __forceinline__ void write(const ScoreArgs& scores, const AttentionArgs& args,
                                               const BlockMapArgs& map, const FirstKey& first_key) {
    const auto look_up = [&](const MapPlace& place, int key, int blocks, int* found) {
      for (int i = threadIdx.x; i < blocks; i += kThreads) found[i] = 0;
      for_each_group<Tiles>(args, place, [&](const RowGroup& rows, int group) {
#pragma unroll 1
        for (int i = threadIdx.x; i < blocks; i += kThreads) {
          const int first = key + i * kBlockN, last = min(first + kBlockN, args.seqlen_kv) - 1;
          found[i] |= group_bits(shown_to(scores, rows, first, last), group);
        }
      });
    };
    write_list<Tiles>(args, map, first_key, look_up);
  }
};

}  // namespace attune
