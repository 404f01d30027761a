// SPDX-License-Identifier: Apache-2.0
// Rounds fp32 to e4m3 and e5m2, to nearest even. Values beyond the largest finite value, infinity
// too, become that value; NaN becomes 0x7f. From sm_89 on one instruction converts two values (PTX
// ISA 9.7.9.22, cvt.rn.satfinite); before, this is integer arithmetic.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

template <Dtype kDtype>
__device__ __forceinline__ unsigned fp8_by_arithmetic(float value) {
  constexpr int kMantissa = kDtype == Dtype::kE4m3 ? 3 : 2;
  constexpr int kBias = kDtype == Dtype::kE4m3 ? 7 : 15;
  constexpr unsigned kLargest = kDtype == Dtype::kE4m3 ? 0x7E : 0x7B;
  constexpr int kShift = 23 - kMantissa;
  constexpr unsigned kFirstNormal = static_cast<unsigned>(127 - kBias + 1) << 23;
  // Below the first normal number, codes are multiples of one step. Adding this number rounds to
  // the step.
  constexpr unsigned kStepBits = static_cast<unsigned>(127 - kBias + 1 + kShift) << 23;
  const unsigned bits = __float_as_uint(value);
  const unsigned magnitude = bits & 0x7FFFFFFFu;
  unsigned code = ((magnitude + (1u << (kShift - 1)) - 1 + (magnitude >> kShift & 1u)) >> kShift) -
                  (static_cast<unsigned>(127 - kBias) << kMantissa);
  if (magnitude < kFirstNormal)
    code = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(kStepBits)) - kStepBits;
  if (magnitude >= kFirstNormal && code > kLargest) code = kLargest;
  if (magnitude > 0x7F800000u) return 0x7Fu;
  return code | (bits >> 24 & 0x80u);
}

// Packs four values into one word, with `a` in the lowest byte.
template <Dtype kDtype>
__device__ __forceinline__ unsigned pack_fp8(float a, float b, float c, float d) {
  static_assert(kDtype == Dtype::kE4m3 || kDtype == Dtype::kE5m2, "pack_fp8 makes e4m3 or e5m2");
  unsigned word;
  if constexpr (kArch < 89) {
    word = fp8_by_arithmetic<kDtype>(a) | fp8_by_arithmetic<kDtype>(b) << 8 |
           fp8_by_arithmetic<kDtype>(c) << 16 | fp8_by_arithmetic<kDtype>(d) << 24;
  } else if constexpr (kDtype == Dtype::kE4m3) {
    asm("{ .reg .b16 l, h;\n"
        "cvt.rn.satfinite.e4m3x2.f32 l, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 h, %4, %3;\n"
        "mov.b32 %0, {l, h}; }"
        : "=r"(word)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  } else {
    asm("{ .reg .b16 l, h;\n"
        "cvt.rn.satfinite.e5m2x2.f32 l, %2, %1;\n"
        "cvt.rn.satfinite.e5m2x2.f32 h, %4, %3;\n"
        "mov.b32 %0, {l, h}; }"
        : "=r"(word)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  }
  return word;
}

// Rounds fp32 to int8, to nearest even. Values are clamped to [-128, 127]; NaN becomes 0 (PTX ISA
// 9.7.9.22, cvt.rni.sat).

__device__ __forceinline__ unsigned int8_of(float value) {
#ifdef __CUDA_ARCH__
  int code;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(code) : "f"(value));
  return static_cast<unsigned>(code) & 0xFFu;
#else
  if (value != value) return 0;
  const float clamped = value < -128.0f ? -128.0f : value > 127.0f ? 127.0f : value;
  return static_cast<unsigned>(static_cast<int>(__builtin_rintf(clamped))) & 0xFFu;
#endif
}

// Packs four values into one word, with `a` in the lowest byte.
__device__ __forceinline__ unsigned pack_int8(float a, float b, float c, float d) {
  return int8_of(a) | int8_of(b) << 8 | int8_of(c) << 16 | int8_of(d) << 24;
}

}  // namespace attune
