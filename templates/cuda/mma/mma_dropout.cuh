// SPDX-License-Identifier: Apache-2.0
// Dropout of the mma.sync prefill kernels. Dropped weights become zero when P is rounded; row sums
// include all weights.
#pragma once

#include "cuda/mma/mma_products.cuh"
#include "cuda/mma/tile_state.cuh"
#include "cuda/parts/dropout_squares.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

class PrefillDropout {
 public:
  // Prepares a block of columns. It makes the head's key again, to save registers.
  __device__ __forceinline__ void make(const KernelParts& parts, const TileState& state,
                                       int block) {
    const Tile tile = state.tile();
    const int thread = reread_thread_index();
    const int warp_row = tile.row_block * kBlockM + thread / 32 * 16 * kRowTiles;
    const DropoutSource source(parts.dropout,
                               made_here(dropout_head(parts.base, tile.batch, tile.head)));
    const unsigned cell = static_cast<unsigned>(block) * (kBlockN / 16);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      squares_[m].make(
          Squares::staying(source, static_cast<unsigned>(warp_row) / 16 + m, thread % 32), cell,
          Squares::own(thread % 32));
    }
  }

  // Drops weights of an A operand: the 16 columns from 16 * `step` on, in row tile m.
  __device__ __forceinline__ void keep(unsigned (&p)[4], int m, int step) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) p[i] = squares_[m].keep(p[i], 2 * step + i / 2, i % 2);
  }

 private:
  using Squares = DropoutSquares<kBlockN / 16, false>;

  Squares squares_[kRowTiles];
};

}  // namespace attune
