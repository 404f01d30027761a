// SPDX-License-Identifier: Apache-2.0
// The two matrix products of a warp that owns kRowTiles * 16 rows: S = Q K^T with Q in registers or
// shared memory, and O += P V with P made from the scores, fragment by fragment, just before it is
// used: exp2 of one fragment overlaps the products of the one before. Used by the mma.sync kernels.
#pragma once

#include "cuda/attention/online_softmax.cuh"
#include "cuda/attention/shared_tile.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

constexpr int kRowTiles = kBlockM / (16 * kWarps);  // m16 tiles a warp owns
constexpr int kQkSteps = (kHeadDimQk + 15) / 16;    // k16 steps of S = Q K^T
constexpr int kScoreTiles = kBlockN / 8;            // n8 tiles of S
constexpr int kOutputTiles = kHeadDimV / 8;         // n8 tiles of O

using Scores = float[kRowTiles][kScoreTiles][4];   // (rows of the warp, kBlockN)
using Output = float[kRowTiles][kOutputTiles][4];  // (rows of the warp, kHeadDimV)

// Where this thread's ldmatrix addresses start in the tiles of Q, K and V.
struct FragmentOffsets {
  unsigned q;  // row lane % 16 of the warp's rows, chunk lane / 16
  unsigned k;  // row lane % 8 + lane / 16 * 8, chunk lane / 8 % 2
  unsigned v;  // row lane % 16, chunk lane / 16
};

// With kHoldOffsets held through the loop; else made anew for each block of columns, which frees
// registers for about 20 instructions. ptxas 13.0 needs even more room on sm_100: there V's is made
// once more when it is needed.
constexpr bool kHoldOffsetOfV = kHoldOffsets || kArch < 100;

__device__ __forceinline__ FragmentOffsets fragment_offsets() {
  const int thread = thread_index_anew();
  const int lane = thread % 32;
  return {SharedTile<kHeadDimQk>::offset(thread / 32 * (16 * kRowTiles) + lane % 16, lane / 16),
          SharedTile<kHeadDimQk>::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2),
          SharedTile<kHeadDimV>::offset(lane % 16, lane / 16)};
}

// Fragments of Q: loaded once, or step by step from shared memory.
class QueryFragments {
  using Shared = SharedTile<kHeadDimQk>;

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
      ldmatrix_x4(a[m], Shared::chunk_pair(tile_ + offset, step) + m * 16 * Shared::kRowBytes);
  }

  unsigned tile_;
  unsigned kept_[kQPlace == kQShared ? 1 : kQkSteps][kRowTiles][4];
};

__device__ __forceinline__ void multiply_qk(Scores& scores, const QueryFragments& query,
                                            unsigned k_tile, const FragmentOffsets& offsets) {
  using Shared = SharedTile<kHeadDimQk>;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n)
      scores[m][n][0] = scores[m][n][1] = scores[m][n][2] = scores[m][n][3] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < kQkSteps; ++step) {
    unsigned a[kRowTiles][4];
    query.get(a, offsets.q, step);
#pragma unroll
    for (int n = 0; n < kScoreTiles; n += 2) {
      unsigned b[4];
      ldmatrix_x4(b, Shared::chunk_pair(k_tile + offsets.k, step) + n * 8 * Shared::kRowBytes);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma<kDtypeKv>(scores[m][n], a[m], b[0], b[1]);
        mma<kDtypeKv>(scores[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

__device__ __forceinline__ void multiply_pv(Output& output, Scores& scores,
                                            OnlineSoftmax<kRowTiles>& softmax, unsigned v_tile,
                                            const FragmentOffsets& offsets) {
  using Shared = SharedTile<kHeadDimV>;
  const unsigned v_address = v_tile + (kHoldOffsetOfV ? offsets.v : fragment_offsets().v);
#pragma unroll
  for (int step = 0; step < kBlockN / 16; ++step) {
    unsigned p[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&fragment)[4] = scores[m][2 * step + half];
        softmax.weigh(fragment, m);
        p[m][2 * half] = pack<kDtypeKv>(fragment[0], fragment[1]);
        p[m][2 * half + 1] = pack<kDtypeKv>(fragment[2], fragment[3]);
      }
    }
#pragma unroll
    for (int n = 0; n < kOutputTiles; n += 2) {
      unsigned b[4];
      const unsigned address = Shared::chunk_pair(v_address, n / 2) + step * 16 * Shared::kRowBytes;
      if (n + 1 < kOutputTiles) {
        ldmatrix_x4_trans(b, address);
      } else {
        ldmatrix_x2_trans(b[0], b[1], address);
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma<kDtypeKv>(output[m][n], p[m], b[0], b[1]);
        if (n + 1 < kOutputTiles) mma<kDtypeKv>(output[m][n + 1], p[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace attune
