// SPDX-License-Identifier: Apache-2.0
// S = Q K^T and dP = dout V^T of a step of backward_lists_sm80, and P and dS, which go to shared
// memory. For the fragments of a lane see ptx/mma.cuh.
#pragma once

#include "cuda/backward_lists_sm80/list_products.cuh"
#include "cuda/ptx/special_functions.cuh"

namespace attune {

// A warp has kN tiles of 8 keys and kM tiles of 16 heads. With kApart half of the warps compute S,
// and the others dP. They read fewer operands, and take P, rounded, from shared memory.
class ListScores {
  static constexpr int kOwnWarps = kApart ? kWarps / 2 : kWarps;
  static constexpr int kN = kApart ? 4 : 2;
  static constexpr int kKeyWarps = kKeys / (8 * kN);
  static constexpr int kRowWarps =
      kHeads / 16 < kOwnWarps / kKeyWarps ? kHeads / 16 : kOwnWarps / kKeyWarps;
  static constexpr int kM = kHeads / 16 / kRowWarps;
  static_assert(kRowWarps >= 1 && kM * kRowWarps * 16 == kHeads && kKeyWarps * 8 * kN == kKeys,
                "warps share heads and keys evenly");
  using Accumulators = float[kM][kN][4];

 public:
  __device__ __forceinline__ ListScores(const AttentionArgs& args, const ListTiles& tiles, int step)
      : tiles_(tiles), step_(step), scale_log2_(args.softmax_scale_log2) {
    const int own = warp_of_block() % kOwnWarps;
    works_ = kRowWarps * kKeyWarps == kOwnWarps || own < kRowWarps * kKeyWarps;
    head_ = own / kKeyWarps * kM * 16, key_ = own % kKeyWarps * 8 * kN;
  }

  __device__ __forceinline__ void make() const {
    if constexpr (kApart) return make_apart();
    if (!works_) return;
    Accumulators s = {}, dp = {};
    multiply_rows<QkTile, QkTile>(tiles_.q(), tiles_.keys(), s);
    multiply_rows<VTile, ValueTile>(tiles_.dout(), tiles_.values(), dp);
    weigh(s);
    store(tiles_.p(), s);
    bend(s, dp);
    store(tiles_.ds(), dp);
  }

 private:
  __device__ __forceinline__ void make_apart() const {
    const bool of_p = warp_of_block() < kOwnWarps;
    Accumulators sums = {};
    if (works_ && of_p) {
      multiply_rows<QkTile, QkTile>(tiles_.q(), tiles_.keys(), sums);
      weigh(sums);
      store(tiles_.p(), sums);
    } else if (works_) {
      multiply_rows<VTile, ValueTile>(tiles_.dout(), tiles_.values(), sums);
    }
    __syncthreads();  // P is complete
    if (!works_ || of_p) return;
    Accumulators p;
    load(tiles_.p(), p);
    bend(p, sums);
    store(tiles_.ds(), sums);
  }

  // Adds A B^T, where A has rows of this warp's heads, and B its keys.
  template <class Tile, class KeyTile>
  __device__ __forceinline__ void multiply_rows(unsigned a_tile, unsigned b_tile,
                                                Accumulators& sums) const {
    const int lane = lane_of_warp();
    unsigned a_rows[kM], b_rows[kN / 2];
#pragma unroll
    for (int m = 0; m < kM; ++m)
      a_rows[m] = a_tile + Tile::offset(head_ + 16 * m + lane % 16, lane / 16);
#pragma unroll
    for (int n = 0; n < kN / 2; ++n)
      b_rows[n] = b_tile + KeyTile::offset(key_ + 16 * n + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll 4
    for (int pair = 0; pair < Tile::kChunks / 2; ++pair) {
      unsigned b[kN / 2][4];
#pragma unroll
      for (int n = 0; n < kN / 2; ++n) ldmatrix_x4(b[n], KeyTile::chunk_pair(b_rows[n], pair));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        unsigned a[4];
        ldmatrix_x4(a, Tile::chunk_pair(a_rows[m], pair));
#pragma unroll
        for (int n = 0; n < kN; ++n)
          mma<kDtypeQ>(sums[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }

  // Makes S to P. A key that the list does not name has weight 0.
  __device__ __forceinline__ void weigh(Accumulators& s) const {
    bool exists[kN][2];
#pragma unroll
    for (int i = 0; i < 2 * kN; ++i)
      exists[i / 2][i % 2] =
          tiles_.key(step_, key_ + i / 2 * 8 + lane_of_warp() % 4 * 2 + i % 2) >= 0;
#pragma unroll
    for (int i = 0; i < 2 * kM; ++i) {
      const float l2 = tiles_.l2(row(i));
#pragma unroll
      for (int j = 0; j < 2 * kN; ++j) {
        float& at = s[i / 2][j / 2][i % 2 * 2 + j % 2];
        const float weight = exp2_approx(scale_log2_ * at - l2);
        at = exists[j / 2][j % 2] ? weight : 0.f;
      }
    }
  }

  // Makes dP to dS = P (dP - delta).
  __device__ __forceinline__ void bend(const Accumulators& p, Accumulators& dp) const {
#pragma unroll
    for (int i = 0; i < 2 * kM; ++i) {
      const float delta = tiles_.delta(row(i));
#pragma unroll
      for (int j = 0; j < 2 * kN; ++j) {
        float& at = dp[i / 2][j / 2][i % 2 * 2 + j % 2];
        at = p[i / 2][j / 2][i % 2 * 2 + j % 2] * (at - delta);
      }
    }
  }

  // Rounds values to 16 bits in shared memory, or loads them from there.
  __device__ __forceinline__ void store(unsigned tile, const Accumulators& values) const {
#pragma unroll
    for (int i = 0; i < 2 * kM * kN; ++i) {
      const float* const pair = &values[i / 2 / kN][i / 2 % kN][i % 2 * 2];
      store_shared_word(tile + place(2 * (i / 2 / kN) + i % 2, i / 2 % kN),
                        static_cast<int>(pack<kDtypeQ>(pair[0], pair[1])));
    }
  }
  __device__ __forceinline__ void load(unsigned tile, Accumulators& values) const {
#pragma unroll
    for (int i = 0; i < 2 * kM * kN; ++i) {
      const unsigned word = load_shared_word(tile + place(2 * (i / 2 / kN) + i % 2, i / 2 % kN));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const auto bits = static_cast<unsigned short>(word >> 16 * j);
        values[i / 2 / kN][i / 2 % kN][i % 2 * 2 + j] =
            kDtypeQ == Dtype::kBf16 ? bf16_to_float(bits) : fp16_to_float(bits);
      }
    }
  }

  // Returns this lane's row number i, of 2 kM.
  __device__ __forceinline__ int row(int i) const { return head_ + 8 * i + lane_of_warp() / 4; }
  // Returns where two elements of that row are, of tile n of 8 keys.
  __device__ __forceinline__ unsigned place(int i, int n) const {
    return ScoreTile::offset(row(i), key_ / 8 + n) + lane_of_warp() % 4 * 4;
  }

  const ListTiles& tiles_;
  const int step_;
  const float scale_log2_;
  bool works_;
  int head_, key_;  // the warp's first ones
};

}  // namespace attune
