// SPDX-License-Identifier: Apache-2.0
// 8-bit operands in shared memory, under the names of operands_16bit.cuh. V is [keys, head_dim] or
// [head_dim, keys], as in the call. Both layouts give fragments of V whose keys are in the same
// order as the keys of P (mma_values_8bit.cuh).
#pragma once

#include "cuda/mma/none/tf32_products.cuh"
#include "cuda/mma/shared_tile.cuh"
#include "cuda/mma/tile_copy.cuh"
#include "cuda/prefill_sm89/transposed_copy.cuh"
#include "cuda/ptx/mma_fp8.cuh"

namespace attune {

constexpr bool kTransposedV = kVLayout == VLayout::kTransposed;
constexpr bool kQuarteredKeys = kTransposedV;            // makes P's keys contiguous, like V's
constexpr int kOutputTiles = (kHeadDimV + 15) / 16 * 2;  // n8 tiles of O, in pairs

using QkTile = SharedTile<kHeadDimQk, 1>;  // tiles of Q and K
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
