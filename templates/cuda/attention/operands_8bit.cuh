// SPDX-License-Identifier: Apache-2.0
// Operands of 8 bits in shared memory: as operands_16bit.cuh, with the same names. Every tile of
// V, [keys, head_dim] or [head_dim, keys] as the call has it, gives fragments whose keys are in the
// order of P's (mma_values_8bit.cuh).
#pragma once

#include "cuda/attention/shared_tile.cuh"
#include "cuda/attention/tile_copy.cuh"
#include "cuda/attention/transposed_copy.cuh"
#include "cuda/ptx/mma_fp8.cuh"

namespace attune {

constexpr bool kTransposedV = kVLayout == VLayout::kTransposed;
constexpr bool kQuarteredKeys = kTransposedV;  // so that P's keys are contiguous, as V's are
constexpr int kOutputTiles = (kHeadDimV + 15) / 16 * 2;  // n8 tiles of O, in pairs

using QkTile = SharedTile<kHeadDimQk, 1>;  // of Q and of K
using QCopy = TileCopy<kHeadDimQk, kBlockM, kThreads, 1>;
using KCopy = TileCopy<kHeadDimQk, kBlockN, kThreads, 1, kQuarteredKeys>;

template <bool kTransposed>
struct VOperand {
  using Tile = SharedTile<kHeadDimV, 1>;
  using Copy = TileCopy<kHeadDimV, kBlockN, kThreads, 1>;
};
template <>
struct VOperand<true> {
  using Tile = SharedTile<kBlockN, 1>;
  using Copy = TransposedCopy<kHeadDimV, kBlockN, kThreads>;
};
using VTile = VOperand<kTransposedV>::Tile;
using VCopy = VOperand<kTransposedV>::Copy;

// Returns the first ldmatrix offset of a lane in a V tile.
__device__ __forceinline__ unsigned v_fragment_offset(int lane) {
  return kTransposedV ? VTile::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2)
                      : VTile::offset(lane, 0);
}

}  // namespace attune
