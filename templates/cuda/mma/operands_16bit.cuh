// SPDX-License-Identifier: Apache-2.0
// 16-bit operands in shared memory: their tiles, how threads copy them, and where fragments of V
// lie. operands_8bit.cuh and operands_32bit.cuh define the same names. The other parts of the
// mma.sync kernels use these names.
#pragma once

#include "cuda/mma/none/tf32_products.cuh"
#include "cuda/mma/shared_tile.cuh"
#include "cuda/mma/tile_copy.cuh"

namespace attune {

using QkTile = SharedTile<kHeadDimQk>;  // tiles of Q and K
using VTile = SharedTile<kHeadDimV>;
using QCopy = TileCopy<kHeadDimQk, kBlockM, kThreads>;
using KCopy = TileCopy<kHeadDimQk, kBlockN, kThreads>;
using VCopy = TileCopy<kHeadDimV, kBlockN, kThreads>;

constexpr bool kQuarteredKeys = false;       // rows of the K tile keep their order
constexpr int kOutputTiles = kHeadDimV / 8;  // n8 tiles of O

// Returns the first ldmatrix offset of a lane in a V tile.
__device__ __forceinline__ unsigned v_fragment_offset(int lane) {
  return VTile::offset(lane % 16, lane / 16);
}

}  // namespace attune
