// SPDX-License-Identifier: Apache-2.0
// Converts int8 to fp16, which represents all its values. An fp16 with upper byte 0x64 and lower
// byte b is 1024 + b (PTX ISA 9.7.5.2, sub.f16x2).
#pragma once

#include "cuda/ptx/permute_bytes.cuh"

namespace attune {

// Converts the four bytes of `word`. `low` gets the values of the two lowest bytes.
__device__ __forceinline__ void int8_to_fp16(unsigned word, unsigned& low, unsigned& high) {
  word ^= 0x80808080u;                     // value + 128
  constexpr unsigned kBias = 0x64806480u;  // 1024 + 128, twice
  low = permuted(word, 0x64646464u, 0x4140);
  high = permuted(word, 0x64646464u, 0x4342);
  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(low) : "r"(kBias));
  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(high) : "r"(kBias));
}

}  // namespace attune
