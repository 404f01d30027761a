// SPDX-License-Identifier: Apache-2.0
// Approximate functions of the special function unit (PTX ISA 9.7.3), one instruction each. exp2: 2
// ulp, exp2(-inf) = 0. log2(0) = -inf. Denormal inputs and results are flushed: weights under
// 2^-126 do not count in a softmax.
#pragma once

namespace attune {

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Approximate roots (PTX ISA 9.7.3), relative error 2^-22.4 or less. Denormal operands count as 0,
// whose reciprocal root is infinity; roots of negative numbers are NaN.

__device__ __forceinline__ float sqrt_approx(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace attune
