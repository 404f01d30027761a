// SPDX-License-Identifier: Apache-2.0
// Adds contiguous fp32 values in shared memory to global memory, or stores them there (PTX ISA
// 9.7.9.25.4, sm_90). Addresses and size must be multiples of 16. Like tma_store(), the copy joins
// the issuing thread's open bulk group.
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
