// SPDX-License-Identifier: Apache-2.0
// The softmax of operands of 16 and 32 bits, which have no factor except the softmax scale. Factors
// has the methods of operand_factors.cuh (8 bits).
#pragma once

#include "cuda/mma/mma_products.cuh"
#include "cuda/mma/tile_state.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/parts/online_softmax.cuh"
#include "cuda/parts/tile_scheduler.cuh"

namespace attune {

using Softmax = OnlineSoftmax<kRowTiles>;

class Factors {
 public:
  struct Step {};

  __device__ Factors(const AttentionArgs&, const Tile&) {}
  __device__ __forceinline__ Softmax softmax(const AttentionArgs& args) const {
    float scales[kRowTiles];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) scales[m] = kScored ? 1.0f : args.softmax_scale_log2;
    return Softmax(scales);
  }
  __device__ __forceinline__ Step step(const AttentionArgs&, const TileState&, int) const {
    return {};
  }
  __device__ __forceinline__ void scale(Scores&, const Step&) const {}
  __device__ __forceinline__ float of_scores(int, int, const Step&) const {
    return 1.4426950408889634f;
  }
  __device__ __forceinline__ float output(const AttentionArgs&, const Tile&, float factor) const {
    return factor;
  }
};

}  // namespace attune
