// SPDX-License-Identifier: Apache-2.0
// Hides keys in an sm_90 kernel: those whose granules (cells) are 0 in a caller's map
// (shared/block_map.h). It runs only for blocks that the warpgroup's rows see partly. A thread
// reads the granules of its two rows as bits, then tests the bits. So no register is indexed by a
// value that is known only at run time.
#pragma once

#include "cuda/parts/block_list.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/parts/score_functions.cuh"
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

class GranuleStage {
 public:
  // The stage for a warpgroup whose rows begin at `first_row`, and for a block of keys that begins
  // at `first_key`.
  __device__ __forceinline__ GranuleStage(const KernelParts& parts, const PrefillTile& tile,
                                          int first_row, int first_key) {
    const ScoreArgs& scores = parts.scores;
    const ScoreCapture& granules = scores.captures[kMapCapture];
    thread_ = reread_thread_index() % kWarpgroupThreads;
    kv_idx_ = scores.kv_position0 + first_key;
    const int batch = scores.batch0 + tile.batch, first = kv_idx_ / kGranuleKeys;
    const int head = scores.head0 + tile.head + thread_head(thread_);
    const int q_idx = scores.q_position0 + first_row + thread_row(thread_);
    bits_[0] = granule_bits(granules, batch, head, q_idx, first);
    bits_[1] = granule_bits(granules, batch, head + kNextHead, q_idx + kNextRow, first);
  }

  // A thread has columns 2 q and 2 q + 1 of each 8.
  template <int kCount>
  __device__ __forceinline__ void hide(float (&s)[kCount]) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int within = kv_idx_ % kGranuleKeys + thread_ % 4 * 2 + j;  // of its first column
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const unsigned even = bits_[row] >> within / kGranuleKeys;
        const unsigned odd = bits_[row] >> (within + 8) / kGranuleKeys;
#pragma unroll
        for (int i = 0; i < kCount / 4; ++i)
          if (((i % 2 == 0 ? even : odd) >> i / 2 & 1) == 0)
            s[4 * i + 2 * row + j] = hidden_score();
      }
    }
  }

 private:
  int thread_;
  int kv_idx_;
  unsigned bits_[2];  // of the thread's two rows
};

}  // namespace attune

namespace none {
using HidingStage = attune::GranuleStage;  // a kernel with a mask program has MaskStage instead
}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
