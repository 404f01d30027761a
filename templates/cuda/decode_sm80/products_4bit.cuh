// SPDX-License-Identifier: Apache-2.0
// Products of a decode kernel with a cache of 4 bits, in fp16. A register of ldmatrix has four
// codes in place of each 16-bit value, and becomes four registers:
//   K  A register holds eight adjacent columns of a key. Columns i and i + 4 come out together, so
//      q is read in that order: of 32 columns a lane has 8 * (lane % 4) to 8 * (lane % 4) + 7.
//   V  A register holds four columns of two keys. A column of both keys comes out together, so two
//      products make 32 columns.
// Codes become fp16 by their bits, without conversions: int4 has offsets that one fma removes while
// it multiplies by the factor; e2m1 has the format of fp16 with a smaller exponent. The values are
// exact (shared/nibble_rows.h).
#pragma once

#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/decode_sm80/products_8bit.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/permute_bytes.cuh"

namespace attune {

// Converts the eight codes of a word. `values[i]` gets the codes i and i + 4, times the two
// `factors`.
//
// int4: 4 bits with the sign inverted are code + 8. As the lowest bits of an fp16 of 1024 they make
// 1032 + code; as the next four bits of an fp16 of 64 they make 72 + code.
__device__ __forceinline__ void int4_to_fp16(unsigned word, unsigned factors,
                                             unsigned (&values)[4]) {
  constexpr unsigned kMinus1032 = 0xE408E408u, kMinus72 = 0xD480D480u;
  const unsigned low_offset = fma_fp16(factors, kMinus1032, 0u);
  const unsigned high_offset = fma_fp16(factors, kMinus72, 0u);
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    values[i] = fma_fp16(lop3<(kA & kB) ^ kC>(word, 0x000F000Fu, 0x64086408u), factors, low_offset);
    values[i + 1] =
        fma_fp16(lop3<(kA & kB) ^ kC>(word, 0x00F000F0u, 0x54805480u), factors, high_offset);
    word >>= 8;
  }
}

// e2m1: the upper byte of an fp16 with the same bits of exponent and mantissa is the value * 2^-14.
__device__ __forceinline__ void e2m1_to_fp16(unsigned word, unsigned factors,
                                             unsigned (&values)[4]) {
  constexpr unsigned kSigns = 0x80808080u, kRest = 0x0E0E0E0Eu, kTwoTo14 = 0x74007400u;
  const unsigned even = lop3<(kA & kB) | kC>(word << 4, kSigns, (word << 1) & kRest);
  const unsigned odd = lop3<(kA & kB) | kC>(word, kSigns, (word >> 3) & kRest);
  const unsigned scaled = fma_fp16(factors, kTwoTo14, 0u);
  values[0] = fma_fp16(permuted(even, 0u, 0x2404), scaled, 0u);
  values[1] = fma_fp16(permuted(odd, 0u, 0x2404), scaled, 0u);
  values[2] = fma_fp16(even & 0xFF00FF00u, scaled, 0u);
  values[3] = fma_fp16(odd & 0xFF00FF00u, scaled, 0u);
}

__device__ __forceinline__ void nibbles_to_fp16(unsigned word, unsigned factors,
                                                unsigned (&values)[4]) {
  if constexpr (kDtypeKv == Dtype::kInt4)
    int4_to_fp16(word, factors, values);
  else
    e2m1_to_fp16(word, factors, values);
}

template <>
struct CacheProducts<4> {
  static constexpr Dtype kMath = Dtype::kFp16;
  static constexpr int kStepsOfLoad = 4;
  static constexpr int kTileColumns = 32;
  static constexpr int kSecondWord = 2;

  // An even step has columns 0, 4, 1 and 5 of a lane's eight, an odd one 2, 6, 3 and 7.
  static __device__ __forceinline__ int first_word(int lane, int step) {
    return lane % 4 * 4 - step % 2 * 7;
  }
  static __device__ __forceinline__ unsigned q_word(unsigned two) {
    return CacheProducts<8>::q_word(two);
  }
  static __device__ __forceinline__ void arrange(unsigned& first, unsigned& second) {
    const unsigned low = permuted(first, second, 0x5410);
    second = permuted(first, second, 0x7632);
    first = low;
  }
};

}  // namespace attune
