// SPDX-License-Identifier: Apache-2.0
// The instruction VDPBF16PS: sums of products of bf16 pairs.
#pragma once

#include "cpu/parts/simd.hpp"

namespace attune {

// Products of pairs of bf16 elements, if the CPU has them (AVX512_BF16). Lane i multiplies elements
// 2 i and 2 i + 1 of both operands and adds both products to its fp32 sum. Denormals count as 0.
#ifdef __AVX512BF16__
constexpr bool kCpuHasPairs = kVectorBytes == 64;
#else
constexpr bool kCpuHasPairs = false;
#endif

inline Floats add_pairs([[maybe_unused]] Words a, [[maybe_unused]] Words b, Floats sum) {
#ifdef __AVX512BF16__
  typedef float Sixteen __attribute__((vector_size(64)));  // the builtin's types
  typedef __bf16 Pairs __attribute__((vector_size(64)));
  if constexpr (kCpuHasPairs)
    return bits_as<Floats>(
        __builtin_ia32_dpbf16ps_512(bits_as<Sixteen>(sum), bits_as<Pairs>(a), bits_as<Pairs>(b)));
#endif
  return sum;
}

}  // namespace attune
