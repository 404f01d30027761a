// SPDX-License-Identifier: Apache-2.0
// st.shared of one 32-bit word by shared-memory address (PTX ISA 9.7.9.8).
#pragma once

namespace attune {

__device__ __forceinline__ void store_shared_word(unsigned shared_address, int value) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(shared_address), "r"(value) : "memory");
}

}  // namespace attune
