// SPDX-License-Identifier: Apache-2.0
// Finds the largest logit of a tile's rows in the mma.sync kernels (parts/max_logits.cuh).
#pragma once

#include "cuda/mma/mma_products.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/parts/max_logits.cuh"
#include "cuda/parts/tile_scheduler.cuh"

namespace attune {

class MaxLogits {
 public:
  __device__ __forceinline__ MaxLogits() {
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) largest_[i / 2][i % 2] = hidden_score();
  }

  // Sees the scores of a block after masks, not yet scaled. Returns them. The softmax takes the
  // same maxima of a block, in the same order, so the compiler makes them once.
  __device__ __forceinline__ const Scores& seen(const Scores& scores) {
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      float largest = hidden_score();
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
        const float(&fragment)[4] = scores[i / 2][n];
        largest = max(largest, max(fragment[i % 2 * 2], fragment[i % 2 * 2 + 1]));
      }
      largest_[i / 2][i % 2] = max(largest_[i / 2][i % 2], largest);
    }
    return scores;
  }

  // Raises the largest logit of the tile's head. Whole warps call it.
  __device__ __forceinline__ void join(const KernelParts& parts, const Tile& tile) const {
    float largest = hidden_score();
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i)
      if (row_of(tile, i / 2, i % 2) < parts.base.seqlen_q)
        largest = max(largest, largest_[i / 2][i % 2]);
    raise_max_logit_of_warp(parts.scales, tile.head, largest * parts.base.softmax_scale);
  }

 private:
  float largest_[kRowTiles][2];
};

}  // namespace attune
