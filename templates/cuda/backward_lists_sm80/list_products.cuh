// SPDX-License-Identifier: Apache-2.0
// Columns of tiles as operands of products of backward_lists_sm80, and dQ += dS K. For the
// fragments of a lane see ptx/mma.cuh.
#pragma once

#include "cuda/backward_lists_sm80/list_tiles.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"

namespace attune {

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int warp_of_block() { return static_cast<int>(threadIdx.x / 32); }

// Loads the 16 rows from `row` on of kCount tiles of 8 columns, as B fragments of a product over
// these rows: b[2 n] and b[2 n + 1] are those of tile `first` + n. Tiles past `last` repeat it.
template <class Tile, int kCount>
__device__ __forceinline__ void load_columns(unsigned tile, int row, int first, int last,
                                             unsigned (&b)[2 * kCount]) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int n = 0; n + 1 < kCount; n += 2) {
    unsigned two[4];
    const int chunk = min(first + n + lane / 16, last);
    ldmatrix_x4_trans(two, tile + Tile::offset(row + lane % 16, chunk));
#pragma unroll
    for (int i = 0; i < 4; ++i) b[2 * n + i] = two[i];
  }
  if constexpr (kCount % 2 != 0)
    ldmatrix_x2_trans(b[2 * kCount - 2], b[2 * kCount - 1],
                      tile + Tile::offset(row + lane % 16, min(first + kCount - 1, last)));
}

// dQ of the block's heads, in registers. Each warp has a share of the columns.
class ListRowGradient {
  static constexpr int kM = kHeads / 16;
  static constexpr int kTiles = kHeadDimQk / 8;  // of 8 columns
  static constexpr int kShare = (kTiles + kWarps - 1) / kWarps;

 public:
  __device__ __forceinline__ ListRowGradient() {
#pragma unroll
    for (int i = 0; i < kM * kShare * 4; ++i) sums_[i / 4 / kShare][i / 4 % kShare][i % 4] = 0.f;
  }

  // dQ += dS K
  __device__ __forceinline__ void add(const ListTiles& tiles) {
    const int lane = lane_of_warp();
#pragma unroll
    for (int key = 0; key < kKeys; key += 16) {
      unsigned b[2 * kShare];
      load_columns<QkTile, kShare>(tiles.keys(), key, first_tile(), kTiles - 1, b);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        unsigned a[4];
        ldmatrix_x4(a, tiles.ds() + ScoreTile::offset(16 * m + lane % 16, key / 8 + lane / 16));
#pragma unroll
        for (int n = 0; n < kShare; ++n) mma<kDtypeQ>(sums_[m][n], a, b[2 * n], b[2 * n + 1]);
      }
    }
  }

  __device__ __forceinline__ void store(const ListBlock& block, const OperandView& to,
                                        float scale) const {
    const int lane = lane_of_warp();
    auto* const base = static_cast<unsigned short*>(to.data) + block.batch * to.batch_stride +
                       block.row * to.row_stride + block.first_head * to.head_stride;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int head = 16 * m + 8 * half + lane / 4;
        if (head >= block.heads) continue;
#pragma unroll
        for (int n = 0; n < kShare; ++n) {
          const int tile = first_tile() + n;
          if (kTiles % kWarps != 0 && tile >= kTiles) continue;
          *reinterpret_cast<unsigned*>(base + head * to.head_stride + 8 * tile + lane % 4 * 2) =
              pack<kDtypeQ>(scale * sums_[m][n][2 * half], scale * sums_[m][n][2 * half + 1]);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ static int first_tile() { return warp_of_block() * kShare; }

  float sums_[kM][kShare][4];
};

}  // namespace attune
