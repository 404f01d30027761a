// SPDX-License-Identifier: Apache-2.0
// The factors of 8-bit operands (shared/kernel_arguments.h) in the mma.sync kernels. All rows of a
// group of 16 have the same factor:
//   q      one factor for the 16 rows of an m16 tile; the tile's softmax scale includes it
//   k, v   with one factor for all rows of a head, the softmax scale includes the factor of k, and
//          O is multiplied by the factor of v at the end
//   k, v   with one factor for each block of rows, scores become
//            score * (softmax scale * factor of k) + log2(factor of v)
//          So a weight includes its key's factor of v, and the row maximum, under which weights are
//          rounded, takes it into account. The sum of weights divides it out again.
// A factor that is NaN or infinite makes the rows that see it non-finite. A factor may be 0 but not
// negative.
#pragma once

#include "cuda/prefill_sm89/operands_8bit.cuh"

#include "cuda/mma/mma_products.cuh"
#include "cuda/mma/tile_state.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/parts/online_softmax.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/ptx/special_functions.cuh"

namespace attune {

// Weights reach 256; the largest e4m3 value is 448. kAccurate uses the exact maximum of the scores
// so far, with all of the headroom: weights are as far as possible above e4m3's smallest values,
// and a row's largest weight is a power of two, so exact. kFast lets the maximum lag by 4.
constexpr bool kExactMaximum = kAccuracy == Accuracy::kAccurate;
using Softmax = OnlineSoftmax<kRowTiles, kExactMaximum ? 0 : 4, kExactMaximum ? 8 : 4>;

constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

constexpr bool kBlockFactors = kScaleBlockKv > 0;
// Number of adjacent columns of a step that share a factor: a multiple of 16.
constexpr int kFactorColumns = kBlockFactors ? common_divisor(kScaleBlockKv, kBlockN) : kBlockN;
constexpr int kStepFactors = kBlockN / kFactorColumns;

// Returns the factor of a row. kBlock rows share a factor; if kBlock is 0, all rows do.
template <int kBlock>
__device__ __forceinline__ float factor_of(const ScaleView& scale, int batch, int head, int row) {
  if (scale.data == nullptr) return 1.0f;
  if (scale.heads_per_scale != 1) head /= scale.heads_per_scale;
  long long at = batch * scale.batch_stride + head * scale.head_stride;
  if constexpr (kBlock > 0) at += row / kBlock * scale.block_stride;
  return scale.data[at];
}

class Factors {
  static constexpr float kTiny = 7.888609052210118e-31f;  // 2^-100

  // Returns 2^-100 for a factor of 0: a hidden score times 2^-100 stays -inf, and log2 of it is
  // finite. NaN stays NaN.
  static __device__ __forceinline__ float not_zero(float factor) {
    return factor < kTiny ? kTiny : factor;
  }

 public:
  // The factors of the columns of one step.
  struct Step {
    float k[kStepFactors];
    float v[kStepFactors];
  };

  __device__ Factors(const KernelParts& parts, const Tile& tile) {
    const AttentionArgs& args = parts.base;
    const ScaleArgs& factors = parts.scales;
    const int kv_head = tile.head / kGqaRatio;
    const int warp_row =
        tile.row_block * kBlockM + static_cast<int>(threadIdx.x) / 32 * 16 * kRowTiles;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const int row = min(warp_row + 16 * m, args.seqlen_q - 1);
      float scale = args.softmax_scale_log2 *
                    factor_of<kScaleBlockQ>(factors.q_scale, tile.batch, tile.head, row);
      if constexpr (!kBlockFactors) scale *= factor_of<0>(factors.k_scale, tile.batch, kv_head, 0);
      // The block list of a tile that sees nothing still names one block. A call without keys has
      // such a list too, and its factor may be any value.
      if (kMaskProgram && args.seqlen_kv == 0) scale = 1.0f;
      scales_[m] = not_zero(scale);
    }
  }

  __device__ __forceinline__ Softmax softmax(const KernelParts&) const {
    float scales[kRowTiles];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) scales[m] = kBlockFactors || kScored ? 1.0f : scales_[m];
    return Softmax(scales);
  }

  __device__ __forceinline__ Step step(const KernelParts& args, const TileState& state,
                                       int block) const {
    Step factors = {};
    if constexpr (kBlockFactors) {
      if (kMaskProgram && args.base.seqlen_kv == 0) return factors;  // likewise
      const Tile tile = state.tile();
      const int head = tile.head / kGqaRatio;
#pragma unroll
      for (int i = 0; i < kStepFactors; ++i) {
        const int column = min(block * kBlockN + i * kFactorColumns, args.base.seqlen_kv - 1);
        factors.k[i] = factor_of<kScaleBlockKv>(args.scales.k_scale, tile.batch, head, column);
        factors.v[i] = factor_of<kScaleBlockKv>(args.scales.v_scale, tile.batch, head, column);
      }
    }
    return factors;
  }

  // Returns the factor of raw scores of the n8 tile n.
  __device__ __forceinline__ float of_scores(int m, int n, const Step& step) const {
    return kBlockFactors ? scales_[m] * step.k[n * 8 / kFactorColumns] : scales_[m];
  }

  __device__ __forceinline__ void scale(Scores& scores, const Step& step) const {
    if constexpr (!kBlockFactors) return;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
      const int group = n * 8 / kFactorColumns;
      const float addend = log2_approx(not_zero(step.v[group]));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float factor = kScored ? 1.0f : of_scores(m, n, step);
          scores[m][n][i] = scores[m][n][i] * factor + addend;
        }
      }
    }
  }

  // Turns the scores of the n8 tile n into weights.
  static __device__ __forceinline__ void exponentiate(float (&fragment)[4], int m, int n,
                                                      Softmax& softmax, const Step& step) {
    if constexpr (kBlockFactors) {
      softmax.exponentiate(fragment, m,
                           reciprocal_approx(not_zero(step.v[n * 8 / kFactorColumns])));
    } else {
      softmax.exponentiate(fragment, m);
    }
  }

  // Returns `normalizer` times the factor of V, unless the weights already contain that factor.
  // `normalizer` is 0 for a row that saw nothing.
  __device__ __forceinline__ float output(const KernelParts& args, const Tile& tile,
                                          float normalizer) const {
    if (kBlockFactors || normalizer == 0.0f) return normalizer;
    return normalizer * factor_of<0>(args.scales.v_scale, tile.batch, tile.head / kGqaRatio, 0);
  }

 private:
  float scales_[kRowTiles];  // factors of scores, times log2(e)
};

}  // namespace attune
