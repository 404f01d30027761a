// SPDX-License-Identifier: Apache-2.0
// Hides keys in an sm_90 kernel: those whose granules (cells) are 0 in a caller's map
// (shared/block_map.h). It runs only for blocks that the warpgroup's rows see partly. A thread
// reads the granules of its two rows as bits, then tests the bits. So no register is indexed by a
// value that is known only at run time.
#pragma once

#include "cuda/parts/block_list.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/score_functions.cuh"
#include "cuda/parts/score_values.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/sm90/tile_rows.cuh"
#include "cuda/sm90/tile_stream.cuh"

namespace attune {

// Returns a word in which bit i is set if the row sees granule first + i. A block that begins
// within a granule touches one granule more than it has.
__device__ __forceinline__ unsigned granule_bits(const ScoreCapture& granules, int batch, int head,
                                                 int q_idx, int first) {
  constexpr int kTouched = kBlockN / kGranuleKeys + 1;
  static_assert(kTouched <= 32, "a word has a bit for each granule of a block");
  const void* line = capture_line<CaptureType::kUint8>(granules, batch, head, q_idx / kGranuleRows);
  unsigned bits = 0;
#pragma unroll 1
  for (int i = 0; i < kTouched; ++i)
    bits |= (load_in_line<CaptureType::kUint8>(line, granules, 3, first + i) != 0 ? 1u : 0u) << i;
  return bits;
}

// Hides scores of the warpgroup whose rows begin at `first_row`, for the keys from `first_key` on.
// A thread has columns 2 q and 2 q + 1 of each 8.
template <int kCount>
__device__ __forceinline__ void hide_scores(const KernelParts& parts, const PrefillTile& tile,
                                            int first_row, int first_key, float (&s)[kCount]) {
  const ScoreArgs& scores = parts.scores;
  const ScoreCapture& granules = scores.captures[kMapCapture];
  const int thread = reread_thread_index() % kWarpgroupThreads;
  const int batch = scores.batch0 + tile.batch;
  const int head = scores.head0 + tile.head + thread_head(thread);
  const int q_idx = scores.q_position0 + first_row + thread_row(thread);
  const int kv_idx = scores.kv_position0 + first_key, first = kv_idx / kGranuleKeys;
  const unsigned bits[2] = {
      granule_bits(granules, batch, head, q_idx, first),
      granule_bits(granules, batch, head + kNextHead, q_idx + kNextRow, first)};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int within = kv_idx % kGranuleKeys + thread % 4 * 2 + j;  // of the thread's first column
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const unsigned even = bits[row] >> within / kGranuleKeys;
      const unsigned odd = bits[row] >> (within + 8) / kGranuleKeys;
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i)
        if (((i % 2 == 0 ? even : odd) >> i / 2 & 1) == 0) s[4 * i + 2 * row + j] = hidden_score();
    }
  }
}

}  // namespace attune
