// SPDX-License-Identifier: Apache-2.0
// The softmax of the mma.sync kernels with dropout. Dropped weights become zero when P is rounded;
// row sums include all weights.
#pragma once

#include "cuda/parts/dropout_squares.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/online_softmax.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

template <int kRowTiles>
class DroppingSoftmax : public OnlineSoftmax<kRowTiles> {
 public:
  __device__ explicit DroppingSoftmax(const float (&scale_log2)[kRowTiles])
      : OnlineSoftmax<kRowTiles>(scale_log2) {}

  // Prepares the next block of columns. It makes the head's key again, to save registers.
  __device__ __forceinline__ void move_to(const KernelParts& parts, const Tile& tile, int block) {
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
