// SPDX-License-Identifier: Apache-2.0
// The factors of 8-bit operands (shared/scaled_attention_args.h) in the mma.sync kernels. They are
// the same in every 16 rows:
//   q      the 16 rows of an m16 tile have one: it goes into the softmax scale of the tile
//   k, v   one for all rows of a head: into the softmax scale and into O. One for each block of
//          rows: scores are multiplied by that of their columns; weights by that of V over the
//          largest that the tile's rows meet, and O by the largest.
// A factor that is NaN or infinite makes what it meets non-finite. 0 is legal; factors are not
// negative.
#pragma once

#include "cuda/attention/mask.cuh"
#include "cuda/attention/tile_scheduler.cuh"
#include "cuda/attention/tile_state.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "shared/scaled_attention_args.h"

namespace attune {

constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

constexpr bool kBlockFactors = kScaleBlockKv > 0;
// Columns of a step that share a factor: a multiple of 16.
constexpr int kFactorColumns = kBlockFactors ? common_divisor(kScaleBlockKv, kBlockN) : kBlockN;
constexpr int kStepFactors = kBlockN / kFactorColumns;

// `head` counts those of the factors. kBlock: rows that share one; 0: all.
template <int kBlock>
__device__ __forceinline__ float factor_of(const ScaleView& scale, int batch, int head, int row) {
  if (scale.data == nullptr) return 1.0f;
  long long at = batch * scale.batch_stride + head * scale.head_stride;
  if constexpr (kBlock > 0) at += row / kBlock * scale.block_stride;
  return scale.data[at];
}

__device__ __forceinline__ float factor_of_q(const ScaledAttentionArgs& args, const Tile& tile,
                                             int row) {
  const int head = args.q_scale.heads_per_scale == 1 ? tile.head : tile.head / kGqaRatio;
  return factor_of<kScaleBlockQ>(args.q_scale, tile.batch, head, row);
}

class Factors {
  static constexpr float kTiny = 7.888609052210118e-31f;  // 2^-100

 public:
  // Of the columns of one step.
  struct Step {
    float k[kStepFactors];
    float v[kStepFactors];  // over the largest
  };

  // What it parks is readable after the next barrier of the block.
  __device__ Factors(const ScaledAttentionArgs& args, const Tile& tile, const BlockRange& visited,
                     const TileState& state)
      : state_(state) {
    if constexpr (kBlockFactors) {
      const float largest = largest_of_v(args, tile, visited);
      if (threadIdx.x == 0) state_.park_word(__float_as_int(largest));
    }
  }

  // What the scores of the m16 tile at `row` are multiplied by, times log2(e). Never 0: a hidden
  // score stays -inf.
  static __device__ __forceinline__ float score_scale(const ScaledAttentionArgs& args,
                                                      const Tile& tile, int row) {
    float scale = args.softmax_scale_log2 * factor_of_q(args, tile, min(row, args.seqlen_q - 1));
    if constexpr (!kBlockFactors)
      scale *= factor_of<0>(args.k_scale, tile.batch, tile.head / kGqaRatio, 0);
    return scale < kTiny ? kTiny : scale;
  }

  __device__ __forceinline__ Step step(const ScaledAttentionArgs& args, int block) const {
    Step factors = {};
    if constexpr (kBlockFactors) {
      const Tile tile = state_.tile();
      const float largest = __int_as_float(state_.word());
      const int head = tile.head / kGqaRatio;
      const float inverse = largest < kTiny ? 0.0f : reciprocal_approx(largest);
#pragma unroll
      for (int i = 0; i < kStepFactors; ++i) {
        const int column = min(block * kBlockN + i * kFactorColumns, args.seqlen_kv - 1);
        factors.k[i] = factor_of<kScaleBlockKv>(args.k_scale, tile.batch, head, column);
        factors.v[i] = factor_of<kScaleBlockKv>(args.v_scale, tile.batch, head, column) * inverse;
      }
    }
    return factors;
  }

  // `normalizer`, 0 for a row that saw nothing, times the factor that O still lacks.
  __device__ __forceinline__ float output(const ScaledAttentionArgs& args, const Tile& tile,
                                          float normalizer) const {
    if (normalizer == 0.0f) return 0.0f;
    if constexpr (kBlockFactors) return normalizer * __int_as_float(state_.word());
    return normalizer * factor_of<0>(args.v_scale, tile.batch, tile.head / kGqaRatio, 0);
  }

 private:
  // The largest finite factor of V in the blocks visited; the same in all lanes.
  static __device__ __forceinline__ float largest_of_v(const ScaledAttentionArgs& args,
                                                       const Tile& tile,
                                                       const BlockRange& visited) {
    if (args.v_scale.data == nullptr || visited.end <= visited.begin) return 1.0f;
    const int first = visited.begin * kBlockN / kScaleBlockKv;
    const int last = (min(visited.end * kBlockN, args.seqlen_kv) - 1) / kScaleBlockKv;
    float largest = 0.0f;
    for (int i = first + static_cast<int>(threadIdx.x) % 32; i <= last; i += 32) {
      const float factor = factor_of<1>(args.v_scale, tile.batch, tile.head / kGqaRatio, i);
      if (factor < __int_as_float(0x7F800000)) largest = max(largest, factor);
    }
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2)
      largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, lanes));
    return largest;
  }

  TileState state_;
};

}  // namespace attune
