// SPDX-License-Identifier: Apache-2.0
// Transposes one tile of V in shared memory, from rows of keys to rows of columns. Several warps
// share a tile. Used by fp8_transpose_inside.cuh. Layouts of both tiles:
// shared/layouts/prefill_sm90_layout.h; order of keys: shared/layouts/prefill_sm90_fp8_layout.h.
#pragma once

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/sm90/sm90_layout.cuh"

namespace attune {

// Returns the swizzle of a row of kRowBytes: its 16-byte chunk c is at place c ^ swizzle.
template <int kRowBytes>
__device__ __forceinline__ int chunk_flip(int row) {
  return row / (128 / kRowBytes) % (kRowBytes / 16);
}

// Transposes 16 keys x 32 columns at a time. ldmatrix transposes pairs of bytes: lane 4 p + q gets
// columns 2 p and 2 p + 1 of keys 2 q and 2 q + 1. A second matrix gives it keys 2 q + 8 and 2 q +
// 9. From these a byte permutation makes word q of both columns, in the order of P, as stmatrix
// takes it. A matrix of stmatrix holds the even columns of lanes p < 4 and the odd columns of the
// others, or the reverse. So the 8 rows of each matrix fall into different banks.
class TileTransposer {
 public:
  __device__ __forceinline__ TileTransposer() {
    const int lane = reread_thread_index() % 32;
    const int matrix = lane / 8, row = lane % 8;
    const int key = matrix % 2 * 8 + row;
    const int column = matrix / 2 * 16 + row * 2 + (matrix % 2 ^ row / 4);
    from_ = key * kLayout.row_given + ((matrix / 2 ^ chunk_flip<kLayout.row_given>(key)) << 4);
    to_ = column * kLayout.row_v + (chunk_flip<kLayout.row_v>(column) << 4);
    first_ = lane < 16 ? kEvenBytes : kOddBytes;
  }

  // Transposes 16 of each kIdleWarps * 16 keys, from key `first` * 16 on. Tiles are aligned, so
  // chunks may be flipped after additions.
  __device__ __forceinline__ void run(unsigned given, unsigned transposed, int first) const {
#pragma unroll 1
    for (int key = 16 * first; key < kBlockN; key += 16 * kIdleWarps) {
      unsigned from = given + from_ + key * kLayout.row_given;
      unsigned to = (transposed + to_ + key / kLayout.row_v * kPanelBytes) ^ key % kLayout.row_v;
#pragma unroll 1
      for (int left = kHeadDimV; left > 0; left -= kLayout.row_given) {
        panel(from, to, left);
        from += kBlockN * kLayout.row_given;
        to += kLayout.row_given * kLayout.row_v;
      }
    }
  }

 private:
  static constexpr int kPanelBytes = kLayout.rows_v * kLayout.row_v;

  static constexpr unsigned kEvenBytes = 0x6420, kOddBytes = 0x7531;

  // Transposes 16 keys of a panel of V as loaded. V has `columns` columns left, this panel
  // included.
  __device__ __forceinline__ void panel(unsigned from, unsigned to, int columns) const {
#pragma unroll
    for (int column = 0; column < kLayout.row_given; column += 32) {
      if (kHeadDimV % kLayout.row_given != 0 && column >= columns) return;
      unsigned pairs[4];
      ldmatrix_x4_trans(pairs, from ^ column);
      store(pairs, to + column * kLayout.row_v);
    }
  }

  __device__ __forceinline__ void store(const unsigned (&pairs)[4], unsigned to) const {
    unsigned words[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      words[2 * half] = __byte_perm(pairs[2 * half], pairs[2 * half + 1], first_);
      words[2 * half + 1] =
          __byte_perm(pairs[2 * half], pairs[2 * half + 1], first_ ^ kEvenBytes ^ kOddBytes);
    }
    stmatrix_x4(to, words);
  }

  unsigned from_;  // offset of the lane's row among 16 keys x 32 columns
  unsigned to_;
  unsigned first_;  // bytes of the lane's columns that go into the first matrix
};

}  // namespace attune
