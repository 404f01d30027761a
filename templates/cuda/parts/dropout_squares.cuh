// SPDX-License-Identifier: Apache-2.0
// Dropout of squares of 16 rows and 16 keys (shared/dropout.h) in a warp's accumulators. The
// squares have the same rows and follow each other along the keys. With kKeysStay, for transposed
// products, they have the same keys and follow each other along the rows.
#pragma once

#include "cuda/parts/dropout_exchange.cuh"
#include "cuda/ptx/permute_bytes.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

template <int kSquares, bool kKeysStay>
class DropoutSquares {
 public:
  static constexpr int kWords = (kSquares + 3) / 4;

  // Returns the source combined with the common rows (row / 16) of the squares or, if keys stay,
  // with their common keys (key / 16).
  __device__ __forceinline__ static DropoutSource staying(const DropoutSource& source,
                                                          unsigned stays,
                                                          unsigned lane = threadIdx.x % 32) {
    return DropoutExchange<4, kKeysStay>::staying(source, stays, lane);
  }

  // Returns a lane's own value for make().
  __device__ __forceinline__ static unsigned own(unsigned lane = threadIdx.x % 32) {
    return DropoutExchange<4, kKeysStay>::own(lane);
  }

  // Makes the words. Whole warps call it, with a source of staying(). `first` counts squares along
  // the dimension that does not stay.
  __device__ __forceinline__ void make(const DropoutSource& source, unsigned first,
                                       unsigned own = DropoutSquares::own()) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      constexpr int kLast = kSquares - 4 * (kWords - 1);
      constexpr int kCount = kLast > 2 ? 4 : kLast;
      word_[i] = i + 1 < kWords
                     ? DropoutExchange<4, kKeysStay>::make(source, first + 4 * i, own)
                     : DropoutExchange<kCount, kKeysStay>::make(source, first + 4 * i, own);
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) word_[i] = made_here(word_[i]);
  }

  // Returns the words, so that a warp can take the words that another warp made.
  __device__ __forceinline__ unsigned (&words())[kWords] { return word_; }

  // Returns two adjacent values of 16 bits, with zeros in place of dropped values. They are in half
  // `half` (of the 16 rows of the accumulator) and in block `block8` of 8 columns.
  __device__ __forceinline__ unsigned keep(unsigned values, int block8, int half) const {
    const unsigned word = word_[block8 / 8];
    const int first = place(block8, half, 0) % 8;
    const unsigned digits = 0xCC88u + 0x1111u * (block8 / 2 % 4);
    return values & permuted(word << (7 - first), word << (3 - first), digits);
  }

  // True if value i of the two is kept.
  __device__ __forceinline__ bool keeps(int block8, int half, int i) const {
    return (word_[block8 / 8] & 1u << place(block8, half, i)) != 0;
  }

 private:
  __device__ __forceinline__ static constexpr int place(int block8, int half, int i) {
    const int low = block8 % 2;
    return block8 / 2 % 4 * 8 + 4 * i + (kKeysStay ? 2 * half + low : 2 * low + half);
  }

  unsigned word_[kWords] = {};  // a byte per square
};

}  // namespace attune
