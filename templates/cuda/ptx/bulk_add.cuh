// SPDX-License-Identifier: Apache-2.0
// Contiguous fp32 of shared memory that is added to global memory, or stored there (PTX ISA
// 9.7.9.25.4, sm_90). Addresses and size are multiples of 16. Part of the issuing thread's open
// bulk group, as tma_store() is.
#pragma once

namespace attune {

__device__ __forceinline__ void bulk_add(float* global, unsigned shared_address, unsigned bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
      "r"(shared_address), "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void bulk_store(float* global, unsigned shared_address, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address), "r"(bytes)
               : "memory");
}

}  // namespace attune
