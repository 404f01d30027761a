// SPDX-License-Identifier: Apache-2.0
// Operands of 32 bits in shared memory: as operands_16bit.cuh, with the same names. A row of an 8x8
// matrix of ldmatrix is 4 elements, the depth of half an mma.sync of tf32, so that fragments of Q
// and K come as those of 16 bits do. Fragments of V do not: mma_values_tf32.cuh.
#pragma once

#include "cuda/attention/shared_tile.cuh"
#include "cuda/attention/tile_copy.cuh"
#include "cuda/ptx/mma_tf32.cuh"

namespace attune {

using QkTile = SharedTile<kHeadDimQk, 4>;  // of Q and of K
using VTile = SharedTile<kHeadDimV, 4>;
using QCopy = TileCopy<kHeadDimQk, kBlockM, kThreads, 4>;
using KCopy = TileCopy<kHeadDimQk, kBlockN, kThreads, 4>;
using VCopy = TileCopy<kHeadDimV, kBlockN, kThreads, 4>;

constexpr bool kQuarteredKeys = false;       // rows of the K tile stand in their order
constexpr int kOutputTiles = kHeadDimV / 8;  // n8 tiles of O
constexpr int kWideTiles = kHeadDimV / 32;   // of O, 32 columns each, from V's first column on

// Sums of parts of Q K^T. Tensor cores cut each sum off, at the size of what it has become: three
// products of wide heads are summed up kSteps steps at a time, and those sums in fp32.
template <class Scores>
class ScoreParts {
  static constexpr int kSteps = 16;                      // 128 columns
  static constexpr int kAllSteps = QkTile::kChunks / 2;  // of all columns

 public:
  // After `step`.
  __device__ __forceinline__ void take(Scores& scores, int step) {
    if constexpr (kTf32Products == 1 || kAllSteps <= kSteps) return;
    const bool last = step + 1 == kAllSteps;
    if ((step + 1) % kSteps != 0 && !last) return;
#pragma unroll
    for (int m = 0; m < kBlockM / (16 * kWarps); ++m) {
#pragma unroll
      for (int i = 0; i < kBlockN / 2; ++i) {
        float& score = scores[m][i / 4][i % 4];
        float& sum = sums_[m][i / 4][i % 4];
        sum = step < kSteps ? score : sum + score;
        score = last ? sum : 0.0f;
      }
    }
  }

 private:
  Scores sums_;  // no registers where there is one part
};

// Returns the offset of a lane's chunk of the first 32 columns in the first 8 rows of a V tile. The
// lane has the same chunk in every 8 rows and 32 columns.
__device__ __forceinline__ unsigned v_fragment_offset(int lane) {
  return VTile::offset(lane % 4 * 2, lane / 4);
}

}  // namespace attune
