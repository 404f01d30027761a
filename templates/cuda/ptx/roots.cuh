// SPDX-License-Identifier: Apache-2.0
// Approximate roots (PTX ISA 9.7.3), relative error 2^-22.4 or less. Denormal operands count as 0,
// whose reciprocal root is infinity; roots of negative numbers are NaN.
#pragma once

namespace attune {

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
