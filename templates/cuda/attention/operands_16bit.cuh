// SPDX-License-Identifier: Apache-2.0
// Operands of 16 bits in shared memory: their tiles, how threads copy them, and where fragments of
// V lie. operands_8bit.cuh says the same for 8 bits; the other parts of the mma.sync kernels are
// written in these names.
#pragma once

#include "cuda/attention/shared_tile.cuh"
#include "cuda/attention/tile_copy.cuh"

namespace attune {

using QkTile = SharedTile<kHeadDimQk>;  // of Q and of K
using VTile = SharedTile<kHeadDimV>;
using QCopy = TileCopy<kHeadDimQk, kBlockM, kThreads>;
using KCopy = TileCopy<kHeadDimQk, kBlockN, kThreads>;
using VCopy = TileCopy<kHeadDimV, kBlockN, kThreads>;

constexpr bool kQuarteredKeys = false;       // rows of the K tile stand in their order
constexpr int kOutputTiles = kHeadDimV / 8;  // n8 tiles of O

// Returns the first ldmatrix offset of a lane in a V tile.
__device__ __forceinline__ unsigned v_fragment_offset(int lane) {
  return VTile::offset(lane % 16, lane / 16);
}

}  // namespace attune
