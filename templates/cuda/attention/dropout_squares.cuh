// SPDX-License-Identifier: Apache-2.0
// Dropout of the squares of 16 rows and 16 keys (shared/dropout.h) in a warp's accumulators.
// Squares have the same rows and follow each other along the keys. With kKeysStay, if products are
// transposed, they have the same keys and follow each other along the rows.
#pragma once

#include "cuda/attention/dropout_exchange.cuh"
#include "cuda/ptx/permute_bytes.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

template <int kSquares, bool kKeysStay>
class DropoutSquares {
 public:
  static constexpr int kWords = (kSquares + 3) / 4;

  // A source of squares of the same rows (row / 16) or, where keys stay, keys (key / 16).
  __device__ __forceinline__ static DropoutSource staying(const DropoutSource& source,
                                                          unsigned stays,
                                                          unsigned lane = threadIdx.x % 32) {
    return DropoutExchange<4, kKeysStay>::staying(source, stays, lane);
  }

  // Returns a lane's own value for make().
  __device__ __forceinline__ static unsigned own(unsigned lane = threadIdx.x % 32) {
    return DropoutExchange<4, kKeysStay>::own(lane);
  }

  // Whole warps call it, with such a source; `first` counts squares along what does not stay.
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

  // Returns the words, to take those that another warp made.
  __device__ __forceinline__ unsigned (&words())[kWords] { return word_; }

  // Two values of 16 bits that follow each other, of half `half` (of the 16 rows of the
  // accumulator) in block `block8` of 8 columns, with zeros where they are dropped.
  __device__ __forceinline__ unsigned keep(unsigned values, int block8, int half) const {
    const unsigned word = word_[block8 / 8];
    const int first = place(block8, half, 0) % 8;
    const unsigned digits = 0xCC88u + 0x1111u * (block8 / 2 % 4);
    return values & permuted(word << (7 - first), word << (3 - first), digits);
  }

  // Value i of the two.
  __device__ __forceinline__ bool keeps(int block8, int half, int i) const {
    return (word_[block8 / 8] & 1u << place(block8, half, i)) != 0;
  }

 private:
  __device__ __forceinline__ static constexpr int place(int block8, int half, int i) {
    const int low = block8 % 2;
    return block8 / 2 % 4 * 8 + 4 * i + (kKeysStay ? 2 * half + low : 2 * low + half);
  }

  unsigned word_[kWords] = {};  // a byte of each square
};

}  // namespace attune
