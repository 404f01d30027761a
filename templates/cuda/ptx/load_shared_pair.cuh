// SPDX-License-Identifier: Apache-2.0
// ld.shared of two floats by shared-memory address (PTX ISA 9.7.9.8).
#pragma once

namespace attune {

// `shared_address` must be a multiple of 8.
__device__ __forceinline__ void load_shared_pair(unsigned shared_address, float* first,
                                                 float* second) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(*first), "=f"(*second)
               : "r"(shared_address)
               : "memory");
}

}  // namespace attune
