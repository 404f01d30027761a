// SPDX-License-Identifier: Apache-2.0
// The larger of two floats, NaN where one of them is (PTX ISA 9.7.3, sm_80 and later): one instruction, as fmaxf, which drops NaN.
#pragma once

namespace attune {

__device__ __forceinline__ float max_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

}  // namespace attune
