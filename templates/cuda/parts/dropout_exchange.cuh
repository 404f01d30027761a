// SPDX-License-Identifier: Apache-2.0
// Makes streams of dropout (shared/dropout.h) in a warp, one per lane. Lanes then exchange words,
// so that each lane has the bits of its accumulators. These are rows of queries or, if products are
// transposed, rows of keys. A word has the bytes of four reading lanes or, transposed, half bytes.
// The table says what each bit of the lane's index selects.
//
// | bit of the lane | 4      | 3            | 2            | 1      | 0            |
// | rows of queries | stream | stream       | byte, square | stream | byte, square |
// | rows of keys    | stream | byte, square | byte, square | stream | stream       |
#pragma once

#include "cuda/parts/dropout_source.cuh"
#include "cuda/ptx/permute_bytes.cuh"

namespace attune {

// kSquares is 1, 2 or 4.
template <int kSquares, bool kKeysStay>
class DropoutExchange {
 public:
  // Returns the source combined with the common part of successive squares: their rows (row / 16)
  // or, if keys stay, their keys (key / 16).
  __device__ __forceinline__ static DropoutSource staying(const DropoutSource& source,
                                                          unsigned stays, unsigned lane) {
    return kKeysStay ? source.of_cell(stays)
                     : source.of_stream((source.first_square() + stays) * 8 + stream(lane));
  }

  // Returns which of four cells a lane makes or, if keys stay, which stream of four rows of
  // squares.
  __device__ __forceinline__ static unsigned own(unsigned lane) {
    return kKeysStay ? lane / 4 % 4 * 8 + stream(lane) : lane % 2 * 2 + lane / 4 % 2;
  }

  // Returns a word whose byte i is for square `first` + i, counted along the dimension that does
  // not stay. Whole warps call it, with a source of staying() and the lane's value of own().
  __device__ __forceinline__ static unsigned make(const DropoutSource& source, unsigned first,
                                                  unsigned own) {
    const unsigned byte = kKeysStay ? own / 8 : own;  // index in a word
    if constexpr (kSquares < 4) own %= kSquares * (kKeysStay ? 8 : 1);
    unsigned got[kSquares];  // word i is of square (own ^ i)
    if (kKeysStay) first += source.first_square();
    got[0] = (kKeysStay ? source.of_stream(first * 8 + own) : source.of_cell(first + own)).bits();
    if (kKeysStay) got[0] = transposed(got[0]);
#pragma unroll
    for (int i = 1; i < kSquares; ++i)
      got[i] = __shfl_xor_sync(~0u, got[0], kKeysStay ? i * 4 : i % 2 * 4 + i / 2);
    if constexpr (kSquares == 1) {
      return got[0] >> 8 * byte;
    } else {
      const unsigned pair = byte & 1 ? 0x04u + 0x11u * byte : 0x40u + 0x11u * byte;
      const unsigned low = permuted(got[0], got[1], pair);
      if constexpr (kSquares == 2) return low;
      const unsigned high = permuted(got[kSquares - 2], got[kSquares - 1], pair);
      return permuted(low, high, byte & 2 ? 0x1054 : 0x5410);
    }
  }

 private:
  // Returns which of a square's eight streams this lane makes.
  __device__ __forceinline__ static unsigned stream(unsigned lane) {
    return kKeysStay ? lane % 4 * 2 + lane / 16 : lane / 8 * 2 + lane / 2 % 2;
  }

  // Swaps half bytes 1 and 2 of each half of the word.
  __device__ __forceinline__ static unsigned transposed(unsigned word) {
    const unsigned moved = (word ^ word >> 4) & 0x00F000F0u;
    return word ^ moved ^ moved << 4;
  }
};

}  // namespace attune
