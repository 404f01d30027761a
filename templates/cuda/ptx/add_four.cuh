// SPDX-License-Identifier: Apache-2.0
// Adds four floats to global memory with one instruction (PTX ISA 9.7.13.8, red of vectors, sm_90).
// The address must be a multiple of 16.
#pragma once

namespace attune {

__device__ __forceinline__ void add_four(float* global, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(a),
               "f"(b), "f"(c), "f"(d)
               : "memory");
}

}  // namespace attune
