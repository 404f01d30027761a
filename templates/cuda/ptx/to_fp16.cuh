// SPDX-License-Identifier: Apache-2.0
// Converts int8, e4m3 and e5m2 to fp16, which represents all their values, and fp32 to fp16 without
// infinities. int8: an fp16 with upper byte 0x64 and lower byte b is 1024 + b (PTX ISA 9.7.5.2,
// sub.f16x2). Floats: PTX ISA 9.7.9.22, sm_89.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/permute_bytes.cuh"

namespace attune {

// Convert the four bytes of `word`. `low` gets the values of the two lowest bytes.
__device__ __forceinline__ void int8_to_fp16(unsigned word, unsigned& low, unsigned& high) {
  word ^= 0x80808080u;                     // value + 128
  constexpr unsigned kBias = 0x64806480u;  // 1024 + 128, twice
  low = permuted(word, 0x64646464u, 0x4140);
  high = permuted(word, 0x64646464u, 0x4342);
  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(low) : "r"(kBias));
  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(high) : "r"(kBias));
}

template <Dtype kDtype>
__device__ __forceinline__ void fp8_to_fp16(unsigned word, unsigned& low, unsigned& high) {
  static_assert(kDtype == Dtype::kE4m3 || kDtype == Dtype::kE5m2, "fp8_to_fp16 takes 8 bits");
  if constexpr (kDtype == Dtype::kE4m3) {
    asm("{ .reg .b16 l, h;\n"
        "mov.b32 {l, h}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, l;\n"
        "cvt.rn.f16x2.e4m3x2 %1, h; }"
        : "=r"(low), "=r"(high)
        : "r"(word));
  } else {
    asm("{ .reg .b16 l, h;\n"
        "mov.b32 {l, h}, %2;\n"
        "cvt.rn.f16x2.e5m2x2 %0, l;\n"
        "cvt.rn.f16x2.e5m2x2 %1, h; }"
        : "=r"(low), "=r"(high)
        : "r"(word));
  }
}

// Packs two numbers as fp16. Magnitudes above 65504, infinity too, become 65504; NaN stays NaN.
__device__ __forceinline__ unsigned pack_finite_fp16(float low, float high) {
  unsigned packed;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

}  // namespace attune
