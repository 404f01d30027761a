// SPDX-License-Identifier: Apache-2.0
// Rounds fp32 to int8, to nearest even. Values are clamped to [-128, 127]; NaN becomes 0 (PTX ISA
// 9.7.9.22, cvt.rni.sat).
#pragma once

namespace attune {

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
