// SPDX-License-Identifier: Apache-2.0
// Conversions between fp32 and the 16-bit types, round to nearest even (PTX ISA 9.7.9.22). Narrow
// values travel as the raw bits of unsigned integers, so that no CUDA header is needed.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

// Packs two values into one register, with `low` in the low half.
template <Dtype kDtype>
__device__ __forceinline__ unsigned pack(float low, float high) {
  static_assert(kDtype == Dtype::kFp16 || kDtype == Dtype::kBf16, "pack makes fp16 or bf16");
  unsigned packed;
  if constexpr (kDtype == Dtype::kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else if constexpr (kArch >= 80) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("{ .reg .b16 l, h;\n"
        "cvt.rn.f16.f32 l, %1;\n"
        "cvt.rn.f16.f32 h, %2;\n"
        "mov.b32 %0, {l, h}; }"
        : "=r"(packed)
        : "f"(low), "f"(high));
  }
  return packed;
}

// Returns a * b + c; each register holds two fp16 values (PTX ISA 9.7.4.4).
__device__ __forceinline__ unsigned fma_fp16(unsigned a, unsigned b, unsigned c) {
  unsigned d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

__device__ __forceinline__ float fp16_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ __forceinline__ float bf16_to_float(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

__device__ __forceinline__ unsigned short float_to_fp16(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// Uses integer arithmetic, so that it also runs before sm_80, which lacks the instruction. NaN
// stays NaN.
__device__ __forceinline__ unsigned short float_to_bf16(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<unsigned short>((bits >> 16) | 0x40u);
  return static_cast<unsigned short>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace attune
