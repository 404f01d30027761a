// SPDX-License-Identifier: Apache-2.0
// Products of a step of backward_lists_sm80: S = Q K^T and dP = dout V^T, of which P and dS go to
// shared memory, and dQ += dS K. For the fragments of a lane see ptx/mma.cuh.
#pragma once

#include "cuda/backward_lists_sm80/list_tiles.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/special_functions.cuh"

namespace attune {

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int warp_of_block() { return static_cast<int>(threadIdx.x / 32); }

// Makes P and dS of a step. A warp has 16 keys and kM tiles of 16 heads.
class ListScores {
  static constexpr int kKeyWarps = kKeys / 16;
  static constexpr int kRowWarps =
      kHeads / 16 < kWarps / kKeyWarps ? kHeads / 16 : kWarps / kKeyWarps;
  static constexpr int kM = kHeads / 16 / kRowWarps;
  static_assert(kRowWarps >= 1 && kM * kRowWarps * 16 == kHeads,
                "warps is at least keys / 16, and each has the same number of heads");
  using Accumulators = float[kM][2][4];

 public:
  __device__ __forceinline__ static void make(const AttentionArgs& args, const ListTiles& tiles,
                                              int step) {
    const int warp = warp_of_block();
    if (kRowWarps * kKeyWarps < kWarps && warp >= kRowWarps * kKeyWarps) return;
    const int head = warp / kKeyWarps * kM * 16, key = warp % kKeyWarps * 16;
    Accumulators s = {}, dp = {};
    multiply_rows<QkTile, QkTile>(tiles.q(), tiles.keys(), head, key, s);
    multiply_rows<VTile, ValueTile>(tiles.dout(), tiles.values(), head, key, dp);
    bool exists[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      exists[i / 2][i % 2] = tiles.key(step, key + i / 2 * 8 + lane_of_warp() % 4 * 2 + i % 2) >= 0;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = head + 16 * m + 8 * half + lane_of_warp() / 4;
        const float l2 = tiles.l2(row), delta = tiles.delta(row);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          float p[2], ds[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float weight = exp2_approx(args.softmax_scale_log2 * s[m][n][2 * half + i] - l2);
            p[i] = exists[n][i] ? weight : 0.f;
            ds[i] = p[i] * (dp[m][n][2 * half + i] - delta);
          }
          const unsigned at = ScoreTile::offset(row, key / 8 + n) + lane_of_warp() % 4 * 4;
          store_shared_word(tiles.p() + at, static_cast<int>(pack<kDtypeQ>(p[0], p[1])));
          store_shared_word(tiles.ds() + at, static_cast<int>(pack<kDtypeQ>(ds[0], ds[1])));
        }
      }
    }
  }

 private:
  // Adds A B^T, where A has rows of heads from `head` on, and B the 16 keys from `key` on.
  template <class Tile, class KeyTile>
  __device__ __forceinline__ static void multiply_rows(unsigned a_tile, unsigned b_tile, int head,
                                                       int key, Accumulators& sums) {
    const int lane = lane_of_warp();
    unsigned a_rows[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m)
      a_rows[m] = a_tile + Tile::offset(head + 16 * m + lane % 16, lane / 16);
    const unsigned b_rows = b_tile + KeyTile::offset(key + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll 4
    for (int pair = 0; pair < Tile::kChunks / 2; ++pair) {
      unsigned b[4];
      ldmatrix_x4(b, KeyTile::chunk_pair(b_rows, pair));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        unsigned a[4];
        ldmatrix_x4(a, Tile::chunk_pair(a_rows[m], pair));
        mma<kDtypeQ>(sums[m][0], a, b[0], b[1]);
        mma<kDtypeQ>(sums[m][1], a, b[2], b[3]);
      }
    }
  }
};

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
