// SPDX-License-Identifier: Apache-2.0
// Converts e4m3 to bf16 or fp16, times a factor. The bits of e4m3 are those of a 16-bit number with
// a smaller exponent, so a product with a power of two converts them: exactly, subnormal numbers
// too. The code of NaN becomes 480 (PTX ISA 9.7.5.3, mul.bf16x2: sm_90; mul.f16x2).
#pragma once

#include "cuda/ptx/permute_bytes.cuh"
#include "shared/attention_enums.h"

namespace attune {

// Two equal 16-bit numbers, which convert: 2^120 in bf16, 2^8 in fp16.
template <Dtype kDtype>
constexpr unsigned kWidening = kDtype == Dtype::kBf16 ? 0x7B807B80u : 0x5C005C00u;

// Places the four codes of `word` in 16 bits each. `low` gets the two lowest bytes.
template <Dtype kDtype>
__device__ __forceinline__ void spread_e4m3(unsigned word, unsigned& low, unsigned& high) {
  constexpr bool kIsBf16 = kDtype == Dtype::kBf16;
  static_assert(kIsBf16 || kDtype == Dtype::kFp16, "e4m3 becomes bf16 or fp16");
  constexpr int kShift = kIsBf16 ? 4 : 1;  // of the sign to the exponent
  constexpr unsigned kUpper = kIsBf16 ? 0x07070707u : 0x3F3F3F3Fu;
  const unsigned upper = (word & 0x80808080u) | (word >> kShift & kUpper);
  const unsigned lower = word << (8 - kShift) & (kIsBf16 ? 0xF0F0F0F0u : 0x80808080u);
  low = permuted(lower, upper, 0x5140);
  high = permuted(lower, upper, 0x7362);
}

// Multiplies two numbers by two factors.
template <Dtype kDtype>
__device__ __forceinline__ unsigned multiply_two(unsigned two, unsigned factors) {
  unsigned product;
  if constexpr (kDtype == Dtype::kBf16)
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(two), "r"(factors));
  else
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(two), "r"(factors));
  return product;
}

// Returns a * b + c of two bf16 numbers each, rounded once (PTX ISA 9.7.5.4, fma.rn.bf16x2: sm_80).
__device__ __forceinline__ unsigned multiply_add_two(unsigned a, unsigned b, unsigned c) {
  unsigned sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

// Converts the four codes of `word`. `factors`: kWidening, times the factor of the values.
template <Dtype kDtype>
__device__ __forceinline__ void widen_e4m3(unsigned word, unsigned factors, unsigned& low,
                                           unsigned& high) {
  spread_e4m3<kDtype>(word, low, high);
  low = multiply_two<kDtype>(low, factors);
  high = multiply_two<kDtype>(high, factors);
}

}  // namespace attune
