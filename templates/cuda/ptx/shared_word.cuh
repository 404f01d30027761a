// SPDX-License-Identifier: Apache-2.0
// ld.shared / st.shared of one 32-bit word by shared-memory address (PTX ISA 9.7.9.8), never cached
// in a register.
#pragma once

namespace attune {

__device__ __forceinline__ int load_shared_word(unsigned shared_address) {
  int value;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(shared_address) : "memory");
  return value;
}

__device__ __forceinline__ void store_shared_word(unsigned shared_address, int value) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(shared_address), "r"(value) : "memory");
}

}  // namespace attune
