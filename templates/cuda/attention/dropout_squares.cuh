// SPDX-License-Identifier: Apache-2.0
// What dropout keeps of squares of 16 rows and 16 keys (shared/dropout.h), as the accumulators of a warp have them: with rows of queries,
// or with rows of keys where products are transposed. Each lane makes streams of a square, and lanes exchange words, whose bytes (or,
// transposed, halves of bytes) have one reader each.
//
// | of a lane              | bits 4 and 3 | bit 2      | bit 1        | bit 0       |
// | rows of queries, has   | stream       | byte       | word         | half        |
// | rows of keys, has      | word, half   | half bytes | stream       | stream      |
#pragma once

#include "cuda/attention/dropout_source.cuh"
#include "cuda/ptx/permute_bytes.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

// The bits of a word that its readers of transposed products want in a byte: halves 1 and 2 of its four half bytes change places.
__device__ __forceinline__ unsigned transposed_places(unsigned word) {
  const unsigned moved = (word ^ word >> 4) & 0x00F000F0u;
  return word ^ moved ^ moved << 4;
}

// Where a warp has kSquares squares: of the same rows, one after the other along the keys, or with kKeysStay of the same keys along the
// rows.
template <int kSquares, bool kKeysStay>
class DropoutSquares {
 public:
  // Whole warps call it. Rows and cells (16 keys) of the first square: row / 16 and key / 16.
  __device__ __forceinline__ void make(const DropoutSource& source, unsigned head, unsigned rows16,
                                       unsigned cell) {
#pragma unroll
    for (int i = 0; i < kSquares; i += 8) {
      const unsigned to_rows = rows16 + (kKeysStay ? i : 0), to_cell = cell + (kKeysStay ? 0 : i);
      constexpr int kLast = (kSquares - 1) % 8;  // of the last eight or fewer
      if (i + 8 <= kSquares || kLast > 3) {
        make_some<8>(source, head, to_rows, to_cell, &word_[i / 4]);
      } else if (kLast > 1) {
        make_some<4>(source, head, to_rows, to_cell, &word_[i / 4]);
      } else {
        make_some<kLast + 1>(source, head, to_rows, to_cell, &word_[i / 4]);
      }
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) word_[i] = made_here(word_[i]);
  }

  // Two values of 16 bits that follow each other, of half `half` (of the 16 rows of the accumulator) in block `block8` of 8 columns, with
  // zeros where they are dropped.
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
  static constexpr int kWords = (kSquares + 3) / 4;     // a byte of each square
  static constexpr int kSquareBit = kKeysStay ? 2 : 0;   // of a lane: the square whose stream it makes
  static constexpr int kWordBit = kKeysStay ? 4 : 1;     // of a lane: the word that it has bits of

  __device__ __forceinline__ static constexpr int place(int block8, int half, int i) {
    const int low = block8 % 2;
    return block8 / 2 % 4 * 8 + 4 * i + (kKeysStay ? 2 * half + low : 2 * low + half);
  }

  // The lanes of a stream make kCount squares of it, which is 1, 2, 4 or 8, and send each other the word that the other has bits of.
  template <int kCount>
  __device__ __forceinline__ static void make_some(const DropoutSource& source, unsigned head,
                                                   unsigned rows16, unsigned cell, unsigned* to) {
    const unsigned lane = static_cast<unsigned>(reread_thread_index()) % 32;
    const unsigned square = (lane >> kSquareBit) % kCount;
    const unsigned stream = kKeysStay ? lane % 4 : lane / 8;
    const unsigned at_rows = rows16 + (kKeysStay ? square : 0);
    DropoutBits bits = source.bits(head, at_rows * 4 + stream, cell + (kKeysStay ? 0 : square));
    if (kKeysStay)
      for (unsigned& word : bits.word) word = transposed_places(word);
    const bool second = lane >> kWordBit & 1;
    const unsigned same = second ? bits.word[1] : bits.word[0];
    const unsigned other = second ? bits.word[0] : bits.word[1];
    constexpr int kOther = 1 << (kWordBit - kSquareBit);  // squares whose lanes have the other word
    unsigned got[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const unsigned sent = i & kOther ? other : same;
      got[i] = i == 0 ? sent : __shfl_xor_sync(~0u, sent, i << kSquareBit);
    }
    gather(got, lane, to);
  }

  // A byte of each word, where word i is of square (own ^ i).
  template <int kCount>
  __device__ __forceinline__ static void gather(const unsigned (&got)[kCount], unsigned lane,
                                                unsigned* to) {
    const unsigned half = kKeysStay ? lane / 8 % 2 : lane % 2;
    const unsigned byte = 2 * half + lane / 4 % 2, own = lane >> kSquareBit;
    if constexpr (kCount == 1) {
      to[0] = got[0] >> 8 * byte;
    } else {
      const unsigned pair = own & 1 ? 0x04u + 0x11u * byte : 0x40u + 0x11u * byte;
      const unsigned quad = own & 2 ? 0x1054 : 0x5410;
      unsigned pairs[kCount / 2], quads[(kCount + 3) / 4];
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) pairs[i] = permuted(got[2 * i], got[2 * i + 1], pair);
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i)
        quads[i] = permuted(pairs[2 * i], pairs[2 * i + 1], quad);
      if (kCount == 2) quads[0] = pairs[0];
      to[0] = kCount == 8 && own & 4 ? quads[kCount / 4 - 1] : quads[0];
      if (kCount == 8) to[1] = own & 4 ? quads[0] : quads[kCount / 4 - 1];
    }
  }

  unsigned word_[kWords] = {};
};

}  // namespace attune
