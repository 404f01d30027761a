// SPDX-License-Identifier: Apache-2.0
// The products of the mma.sync gradient kernels. A warp owns kM * 16 rows of the tile that stays.
// multiply_rows multiplies them by the rows of a step's tile. multiply_columns multiplies rounded
// accumulators by the columns of a step's tile. No operand is transposed in memory.
#pragma once

#include "cuda/mma/shared_tile.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

// These three return the thread's first ldmatrix offset: for the warp's rows of the tile that
// stays, for the rows of a step's tile, and for its columns.
template <class Tile, int kM>
__device__ __forceinline__ unsigned stay_offset() {
  const int thread = reread_thread_index();
  return Tile::offset(thread / 32 * (16 * kM) + thread % 16, thread % 32 / 16);
}
template <class Tile>
__device__ __forceinline__ unsigned rows_offset() {
  const int lane = reread_thread_index() % 32;
  return Tile::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}
template <class Tile>
__device__ __forceinline__ unsigned columns_offset() {
  const int lane = reread_thread_index() % 32;
  return Tile::offset(lane % 16, lane / 16);
}

template <int kM, int kN>
__device__ __forceinline__ void clear(float (&d)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) d[m][n][0] = d[m][n][1] = d[m][n][2] = d[m][n][3] = 0.f;
  }
}

// Computes d = A B^T over kHeadDim columns: A is the warp's rows in `a_tile`, B is the step's rows
// in `b_tile`.
template <int kHeadDim, int kM, int kN>
__device__ __forceinline__ void multiply_rows(float (&d)[kM][kN][4], unsigned a_tile,
                                              unsigned b_tile) {
  using Tile = SharedTile<kHeadDim>;
  const unsigned a_address = a_tile + stay_offset<Tile, kM>();
  const unsigned b_address = b_tile + rows_offset<Tile>();
  clear(d);
#pragma unroll
  for (int step = 0; step < Tile::kChunks / 2; ++step) {
    unsigned a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m)
      ldmatrix_x4(a[m], Tile::chunk_pair(a_address, step) + m * 16 * Tile::kRowBytes);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      unsigned b[4];
      ldmatrix_x4(b, Tile::chunk_pair(b_address, step) + n * 8 * Tile::kRowBytes);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma<kDtypeQ>(d[m][n], a[m], b[0], b[1]);
        mma<kDtypeQ>(d[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Computes d += A B: A is the accumulators of a step, rounded; B is the step's tile.
template <int kHeadDim, int kM, int kN>
__device__ __forceinline__ void multiply_columns(float (&d)[kM][kHeadDim / 8][4],
                                                 const float (&a)[kM][kN][4], unsigned b_tile) {
  using Tile = SharedTile<kHeadDim>;
  constexpr int kColumnTiles = kHeadDim / 8;
  const unsigned b_address = b_tile + columns_offset<Tile>();
#pragma unroll
  for (int step = 0; step < kN / 2; ++step) {
    unsigned rounded[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        rounded[m][i] =
            pack<kDtypeQ>(a[m][2 * step + i / 2][i % 2 * 2], a[m][2 * step + i / 2][i % 2 * 2 + 1]);
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      unsigned b[4];
      const unsigned address = Tile::chunk_pair(b_address, n / 2) + step * 16 * Tile::kRowBytes;
      if (n + 1 < kColumnTiles) {
        ldmatrix_x4_trans(b, address);
      } else {
        ldmatrix_x2_trans(b[0], b[1], address);
      }
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma<kDtypeQ>(d[m][n], rounded[m], b[0], b[1]);
        if (n + 1 < kColumnTiles) mma<kDtypeQ>(d[m][n + 1], rounded[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace attune
