// SPDX-License-Identifier: Apache-2.0
// Streams of dropout (shared/dropout.h) made by a warp, each lane one, and the words that lanes then send each other, so that each has
// the places which accumulators have in its lane: of rows of queries, or of rows of keys where products are transposed. A word has four
// readers' bytes or, transposed, halves of bytes.
//
// | of a lane              | bits 4 and 3 | bit 2      | bit 1        | bit 0       |
// | rows of queries, has   | stream       | byte       | word         | half        |
// | rows of keys, has      | word, half   | half bytes | stream       | stream      |
//
// The bits that are left are the square whose stream a lane makes.
#pragma once

#include "cuda/attention/dropout_source.cuh"
#include "cuda/ptx/permute_bytes.cuh"

namespace attune {

// A square of 16 rows and 16 keys: row / 16 and key / 16.
struct DropoutSquare {
  unsigned head, rows16, cell;
};

// kSquares is 1, 2, 4 or 8.
template <int kSquares, bool kKeysStay>
class DropoutExchange {
 public:
  // Which of the squares this lane makes a stream of.
  __device__ __forceinline__ static unsigned own_square(unsigned lane) {
    return (lane >> kSquareBit) % kSquares;
  }

  // By whole warps; `square` is this lane's own. Byte i of words[i / 4] is of square i.
  __device__ __forceinline__ static void make(const DropoutSource& source,
                                              const DropoutSquare& square, unsigned lane,
                                              unsigned* words) {
    const unsigned stream = kKeysStay ? lane % 4 : lane / 8;
    DropoutBits bits = source.bits(square.head, square.rows16 * 4 + stream, square.cell);
    if (kKeysStay) {
      bits.word[0] = transposed(bits.word[0]);
      bits.word[1] = transposed(bits.word[1]);
    }
    const bool second = lane >> kWordBit & 1;
    const unsigned same = second ? bits.word[1] : bits.word[0];
    const unsigned other = second ? bits.word[0] : bits.word[1];
    constexpr int kOther = 1 << (kWordBit - kSquareBit);  // squares whose lanes have the other word
    unsigned got[kSquares];
#pragma unroll
    for (int i = 0; i < kSquares; ++i) {
      const unsigned sent = i & kOther ? other : same;
      got[i] = i == 0 ? sent : __shfl_xor_sync(~0u, sent, i << kSquareBit);
    }
    gather(got, lane, words);
  }

 private:
  static constexpr int kSquareBit = kKeysStay ? 2 : 0;  // of a lane
  static constexpr int kWordBit = kKeysStay ? 4 : 1;

  // Halves 1 and 2 of the four half bytes of each half change places.
  __device__ __forceinline__ static unsigned transposed(unsigned word) {
    const unsigned moved = (word ^ word >> 4) & 0x00F000F0u;
    return word ^ moved ^ moved << 4;
  }

  // A byte of each word, where word i is of square (own ^ i).
  __device__ __forceinline__ static void gather(const unsigned (&got)[kSquares], unsigned lane,
                                                unsigned* words) {
    const unsigned half = kKeysStay ? lane / 8 % 2 : lane % 2;
    const unsigned byte = 2 * half + lane / 4 % 2, own = lane >> kSquareBit;
    if constexpr (kSquares == 1) {
      words[0] = got[0] >> 8 * byte;
    } else {
      const unsigned pair = own & 1 ? 0x04u + 0x11u * byte : 0x40u + 0x11u * byte;
      const unsigned quad = own & 2 ? 0x1054 : 0x5410;
      unsigned pairs[kSquares / 2], quads[(kSquares + 3) / 4];
#pragma unroll
      for (int i = 0; i < kSquares / 2; ++i) pairs[i] = permuted(got[2 * i], got[2 * i + 1], pair);
#pragma unroll
      for (int i = 0; i < kSquares / 4; ++i)
        quads[i] = permuted(pairs[2 * i], pairs[2 * i + 1], quad);
      if (kSquares == 2) quads[0] = pairs[0];
      words[0] = kSquares == 8 && own & 4 ? quads[kSquares / 4 - 1] : quads[0];
      if (kSquares == 8) words[1] = own & 4 ? quads[0] : quads[kSquares / 4 - 1];
    }
  }
};

}  // namespace attune
