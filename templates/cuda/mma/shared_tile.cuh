// SPDX-License-Identifier: Apache-2.0
// A tile of rows of 8-, 16- or 32-bit elements in shared memory. It is swizzled so that ldmatrix (8
// rows, one chunk) and 16-byte row writes have no bank conflicts at any head dim. Used by the
// mma.sync kernels.
#pragma once

#include "shared/layouts/prefill_sm80_layout.h"

namespace attune {

// Rows are kChunks chunks of 16 bytes; there are 8 bank groups of 16 bytes. An XOR with bits of the
// row number separates rows whose chunk c would fall into one bank group. With kChunks = odd * 2^b,
// rows r and r + 2^(3-b) collide, so
//   chunk' = chunk ^ ((row >> (3 - b)) & (2^b - 1)),  b <= 3.
template <int kHeadDim, int kElementBytes = 2>
struct SharedTile {
  static constexpr int kRowBytes = prefill_sm80_row_bytes(kHeadDim, kElementBytes);
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kSwizzleBits = kChunks % 8 == 0 ? 3 : (kChunks % 4 == 0 ? 2 : 1);
  static constexpr int kSwizzleMask = (1 << kSwizzleBits) - 1;

  static __device__ __forceinline__ unsigned offset(int row, int chunk) {
    const int swizzle = (row >> (3 - kSwizzleBits)) & kSwizzleMask;
    return static_cast<unsigned>(row * kRowBytes + (chunk ^ swizzle) * 16);
  }

  // Returns the address of (row, chunk), given that of (row, 0). Tiles start at multiples of 128
  // bytes, so the swizzled bits of an address are those of the chunk alone.
  static __device__ __forceinline__ unsigned chunk(unsigned address, int chunk) {
    return (address ^ static_cast<unsigned>((chunk & kSwizzleMask) * 16)) +
           static_cast<unsigned>((chunk & ~kSwizzleMask) * 16);
  }

  // Returns the address of (row, c + 2 * pair), given that of (row, c), where c is 0 or 1.
  static __device__ __forceinline__ unsigned chunk_pair(unsigned address, int pair) {
    return chunk(address, 2 * pair);
  }
};

}  // namespace attune
