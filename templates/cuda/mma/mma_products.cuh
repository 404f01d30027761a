// SPDX-License-Identifier: Apache-2.0
// Computes S = Q K^T for a warp that owns kRowTiles * 16 rows, with Q in registers or shared
// memory. It also has the types that both products of the mma.sync kernels share. A step is 32
// bytes of head_dim: 8, 16 or 32 elements (operands_32bit.cuh, operands_16bit.cuh,
// operands_8bit.cuh). mma_values_tf32.cuh, mma_values_16bit.cuh and mma_values_8bit.cuh compute O
// += P V.
#pragma once

#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

constexpr int kRowTiles = kBlockM / (16 * kWarps);  // m16 tiles per warp
constexpr int kQkSteps = QkTile::kChunks / 2;       // steps of S = Q K^T
constexpr int kScoreTiles = kBlockN / 8;            // n8 tiles of S

constexpr int kWarpRows = 16 * kRowTiles;

using Scores = float[kRowTiles][kScoreTiles][4];   // (rows of the warp, kBlockN)
using Output = float[kRowTiles][kOutputTiles][4];  // (rows of the warp, kHeadDimV)

// Returns the row of elements 2 * half and 2 * half + 1 of this thread's fragments [m][...].
__device__ __forceinline__ int row_of(const Tile& tile, int m, int half) {
  const int thread = reread_thread_index();
  return tile.row_block * kBlockM + thread / 32 * kWarpRows + m * 16 + half * 8 + thread % 32 / 4;
}

// First ldmatrix offsets of this thread in the tiles of Q, K and V.
struct FragmentOffsets {
  unsigned q;  // row lane % 16 of the warp's rows, chunk lane / 16
  unsigned k;  // row lane % 8 + lane / 16 * 8, chunk lane / 8 % 2
  unsigned v;  // v_fragment_offset
};

// With kHoldOffsets the offsets stay in registers through the loop. Otherwise each block of columns
// computes them again, which frees registers for about 20 instructions. ptxas 13.0 needs still more
// registers on sm_100: there V's offset is computed once more just before V is read.
constexpr bool kHoldOffsetOfV = kHoldOffsets || kArch < 100;

__device__ __forceinline__ FragmentOffsets fragment_offsets() {
  const int thread = reread_thread_index();
  const int lane = thread % 32;
  return {QkTile::offset(thread / 32 * (16 * kRowTiles) + lane % 16, lane / 16),
          QkTile::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2), v_fragment_offset(lane)};
}

// Fragments of Q: loaded once and kept in registers, or loaded from shared memory at each step.
class QueryFragments {
 public:
  // `tile`: shared address of the block's Q tile.
  __device__ __forceinline__ explicit QueryFragments(unsigned tile) : tile_(tile) {}

  __device__ __forceinline__ void keep() {
    if constexpr (kQPlace != kQShared) {
#pragma unroll
      for (int step = 0; step < kQkSteps; ++step) load(kept_[step], fragment_offsets().q, step);
    }
  }

  __device__ __forceinline__ void get(unsigned (&a)[kRowTiles][4], unsigned offset,
                                      int step) const {
    if constexpr (kQPlace == kQShared) {
      load(a, offset, step);
    } else {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = kept_[step][m][i];
      }
    }
  }

 private:
  __device__ __forceinline__ void load(unsigned (&a)[kRowTiles][4], unsigned offset,
                                       int step) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
      ldmatrix_x4(a[m], QkTile::chunk_pair(tile_ + offset, step) + m * 16 * QkTile::kRowBytes);
  }

  unsigned tile_;
  unsigned kept_[kQPlace == kQShared ? 1 : kQkSteps][kRowTiles][4];
};

__device__ __forceinline__ void multiply_qk(Scores& scores, const QueryFragments& query,
                                            unsigned k_tile, const FragmentOffsets& offsets) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n)
      scores[m][n][0] = scores[m][n][1] = scores[m][n][2] = scores[m][n][3] = 0.0f;
  }
  ScoreParts<Scores> parts;
#pragma unroll
  for (int step = 0; step < kQkSteps; ++step) {
    unsigned a[kRowTiles][4];
    query.get(a, offsets.q, step);
#pragma unroll
    for (int n = 0; n < kScoreTiles; n += 2) {
      unsigned b[4];
      ldmatrix_x4(b, QkTile::chunk_pair(k_tile + offsets.k, step) + n * 8 * QkTile::kRowBytes);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma<kDtypeKv>(scores[m][n], a[m], b[0], b[1]);
        mma<kDtypeKv>(scores[m][n + 1], a[m], b[2], b[3]);
      }
    }
    parts.take(scores, step);
  }
}

}  // namespace attune
