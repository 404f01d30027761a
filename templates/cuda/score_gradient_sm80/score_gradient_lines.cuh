// SPDX-License-Identifier: Apache-2.0
// Sums dz of a tile of score_gradient_sm80: per column if the rows share a bias, per diagonal if
// the bias depends on distances, or over the whole tile. The sums are in the workspace. Only this
// thread block adds to them, so the order of additions is fixed.
#pragma once

#include "cuda/parts/row_sums.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "shared/layouts/score_gradient_layout.h"

namespace attune {

__device__ __forceinline__ long long partial_columns_of(const AttentionArgs& args) {
  return partial_columns(kScoreGradient, kRepeats, kBlockM, kBlockN, args.seqlen_kv);
}

// Returns the partial sums of one tile.
__device__ __forceinline__ float* partial_sums(const AttentionArgs& args, int batch, int head,
                                               int row_block) {
  const long long heads = static_cast<long long>(args.batch) * args.num_heads_q;
  const long long row_floats = (2 * heads * padded_rows(args) + 63) / 64 * 64;
  const int tiles = (args.seqlen_q + kBlockM - 1) / kBlockM;
  const long long tile =
      (static_cast<long long>(batch) * args.num_heads_q + head) * tiles + row_block;
  return static_cast<float*>(args.workspace) + row_floats + tile * partial_columns_of(args);
}

class ScoreGradientLines {
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStride = dz_stride(kBlockN);
  static constexpr bool kDiagonals = kScoreGradient == kOfRelativeBias;
  static constexpr bool kHasLines =
      score_gradient_tile_bytes(kScoreGradient, kRepeats, kBlockM, kBlockN) > 0;
  static constexpr int kLines = kDiagonals ? kBlockM + kBlockN - 1 : kBlockN;

 public:
  __device__ __forceinline__ explicit ScoreGradientLines(float* dz_tile) : dz_tile_(dz_tile) {}

  __device__ __forceinline__ void start(const AttentionArgs& args, const Tile& tile) {
    if constexpr (!kHasLines) return;
    float* const sums = partial_sums(args, tile.batch, tile.head, tile.row_block);
    const int columns = static_cast<int>(partial_columns_of(args));
    for (int i = static_cast<int>(threadIdx.x); i < columns; i += kThreads) sums[i] = 0.f;
  }

  // Adds dz of a block of keys to the sums. All threads of the thread block call it, each with its
  // own elements.
  template <int kM, int kN>
  __device__ __forceinline__ void add(const AttentionArgs& args, const Tile& tile, int block,
                                      const float (&dz)[kM][kN][4]) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int row = thread / 32 * 16 * kM + thread % 32 / 4, column = thread % 4 * 2;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          dz_tile_[(row + 16 * m + i / 2 * 8) * kStride + column + 8 * n + i % 2] = dz[m][n][i];
      }
    }
    __syncthreads();
    float* const sums = partial_sums(args, tile.batch, tile.head, tile.row_block) + block * kBlockN;
    for (int line = thread; line < kLines; line += kThreads) sums[line] += sum_of(line);
    __syncthreads();
  }

  // Writes the sum of `value` over all threads.
  __device__ __forceinline__ void write_one(const AttentionArgs& args, const Tile& tile,
                                            float value) const {
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, lanes);
    if (threadIdx.x % 32 == 0) dz_tile_[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float sum = 0.f;
    for (int warp = 0; warp < kWarps; ++warp) sum += dz_tile_[warp];
    *partial_sums(args, tile.batch, tile.head, tile.row_block) = sum;
  }

 private:
  // Returns the sum of a column, or of the diagonal whose key - row + kBlockM - 1 is the line.
  __device__ __forceinline__ float sum_of(int line) const {
    float sum = 0.f;
#pragma unroll 8
    for (int row = 0; row < kBlockM; ++row) {
      const int column = kDiagonals ? line + row - (kBlockM - 1) : line;
      if (column >= 0 && column < kBlockN) sum += dz_tile_[row * kStride + column];
    }
    return sum;
  }

  float* dz_tile_;
};

}  // namespace attune
