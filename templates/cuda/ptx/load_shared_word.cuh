// SPDX-License-Identifier: Apache-2.0
// ld.shared of one 32-bit word by shared-memory address (PTX ISA 9.7.9.8).
#pragma once

namespace attune {

__device__ __forceinline__ unsigned load_shared_word(unsigned shared_address) {
  unsigned value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(shared_address) : "memory");
  return value;
}

}  // namespace attune
