// SPDX-License-Identifier: Apache-2.0
// The two matrix products of a warp that owns kRowTiles * 16 rows: S = Q K^T with Q in registers or shared memory, and
// O += P V with P made from the scores, fragment by fragment, just before it is used: exp2 of one fragment overlaps the products of
// the one before. Used by the mma.sync kernels.
#pragma once

#include "cuda/attention/online_softmax.cuh"
#include "cuda/attention/shared_tile.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

constexpr int kRowTiles = kBlockM / (16 * kWarps);          // m16 tiles a warp owns
constexpr int kQkSteps = (kHeadDimQk + 15) / 16;            // k16 steps of S = Q K^T
constexpr int kScoreTiles = kBlockN / 8;                    // n8 tiles of S
constexpr int kOutputTiles = kHeadDimV / 8;                 // n8 tiles of O

using Scores = float[kRowTiles][kScoreTiles][4];            // (rows of the warp, kBlockN)
using Output = float[kRowTiles][kOutputTiles][4];           // (rows of the warp, kHeadDimV)

// Fragments of Q: loaded once, or step by step from the warp's rows in shared memory. Addresses are made anew for each block of
// columns: a few instructions, against registers held through the whole loop.
class QueryFragments {
  using Shared = SharedTile<kHeadDimQk>;

 public:
  // `tile`: shared address of the block's Q tile.
  __device__ __forceinline__ explicit QueryFragments(unsigned tile) : tile_(tile) {}

  // Of this thread's first fragment: row lane % 16 of the warp's rows, chunk lane / 16.
  __device__ __forceinline__ unsigned lane_address() const {
    const int thread = thread_index_anew();
    return tile_ + Shared::offset(thread / 32 * (16 * kRowTiles) + thread % 16, thread / 16 % 2);
  }

  __device__ __forceinline__ void keep() {
    if constexpr (kQPlace != kQShared) {
#pragma unroll
      for (int step = 0; step < kQkSteps; ++step) load(kept_[step], lane_address(), step);
    }
  }

  __device__ __forceinline__ void get(unsigned (&a)[kRowTiles][4], unsigned lane_address, int step) const {
    if constexpr (kQPlace == kQShared) {
      load(a, lane_address, step);
    } else {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = kept_[step][m][i];
      }
    }
  }

 private:
  static __device__ __forceinline__ void load(unsigned (&a)[kRowTiles][4], unsigned lane_address, int step) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) ldmatrix_x4(a[m], Shared::chunk_pair(lane_address, step) + m * 16 * Shared::kRowBytes);
  }

  unsigned tile_;
  unsigned kept_[kQPlace == kQShared ? 1 : kQkSteps][kRowTiles][4];
};

__device__ __forceinline__ void multiply_qk(Scores& scores, const QueryFragments& query, unsigned k_tile) {
  using Shared = SharedTile<kHeadDimQk>;
  const int lane = thread_index_anew() % 32;
  const unsigned q_address = query.lane_address();
  const unsigned k_address = k_tile + Shared::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) scores[m][n][0] = scores[m][n][1] = scores[m][n][2] = scores[m][n][3] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < kQkSteps; ++step) {
    unsigned a[kRowTiles][4];
    query.get(a, q_address, step);
#pragma unroll
    for (int n = 0; n < kScoreTiles; n += 2) {
      unsigned b[4];
      ldmatrix_x4(b, Shared::chunk_pair(k_address, step) + n * 8 * Shared::kRowBytes);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma<kDtypeKv>(scores[m][n], a[m], b[0], b[1]);
        mma<kDtypeKv>(scores[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

__device__ __forceinline__ void multiply_pv(Output& output, Scores& scores, OnlineSoftmax<kRowTiles>& softmax, unsigned v_tile) {
  using Shared = SharedTile<kHeadDimV>;
  const int lane = thread_index_anew() % 32;
  const unsigned v_address = v_tile + Shared::offset(lane % 16, lane / 16);
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
