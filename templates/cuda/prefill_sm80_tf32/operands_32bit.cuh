// SPDX-License-Identifier: Apache-2.0
// 32-bit operands in shared memory, under the names of operands_16bit.cuh. A row of an 8x8 ldmatrix
// matrix is 4 elements, half the depth of a tf32 mma.sync. So ldmatrix loads fragments of Q and K
// as it does for 16 bits. It cannot load fragments of V: see mma_values_tf32.cuh.
#pragma once

#include "cuda/mma/shared_tile.cuh"
#include "cuda/mma/tile_copy.cuh"
#include "cuda/ptx/mma_tf32.cuh"

namespace attune {

using QkTile = SharedTile<kHeadDimQk, 4>;  // tiles of Q and K
using VTile = SharedTile<kHeadDimV, 4>;
using QCopy = TileCopy<kHeadDimQk, kBlockM, kThreads, 4>;
using KCopy = TileCopy<kHeadDimQk, kBlockN, kThreads, 4>;
using VCopy = TileCopy<kHeadDimV, kBlockN, kThreads, 4>;

constexpr bool kQuarteredKeys = false;       // rows of the K tile keep their order
constexpr int kOutputTiles = kHeadDimV / 8;  // n8 tiles of O
constexpr int kWideTiles = kHeadDimV / 32;   // tiles of O with 32 columns, from column 0 on

// Sums Q K^T in parts. Tensor cores truncate each sum relative to the size of the accumulator. So
// for wide heads with three products per element, tensor cores sum only kSteps steps, and fp32
// additions sum these parts.
template <class Scores>
class ScoreParts {
  static constexpr int kSteps = 16;                      // 128 columns
  static constexpr int kAllSteps = QkTile::kChunks / 2;  // steps of all columns

 public:
  // Adds the finished part to the sums, if `step` ends one. Call it after each step.
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
  Scores sums_;  // takes no registers if there is only one part
};

// Returns the offset of a lane's chunk within the first 8 rows and 32 columns of a V tile. The lane
// has the same chunk in every other 8 rows and 32 columns.
__device__ __forceinline__ unsigned v_fragment_offset(int lane) {
  return VTile::offset(lane % 4 * 2, lane / 4);
}

}  // namespace attune
