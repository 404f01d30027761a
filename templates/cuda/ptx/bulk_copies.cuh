// SPDX-License-Identifier: Apache-2.0
// Copies of contiguous bytes between shared and global memory by bulk copies, and additions to
// global memory without a tensor map. Addresses and sizes must be multiples of 16.
#pragma once

namespace attune {

// Copies `bytes` to shared memory and counts them on `barrier` (PTX ISA 9.7.9.25.4, sm_90). One
// thread calls it.
__device__ __forceinline__ void bulk_load(unsigned shared_address, const void* global,
                                          unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

// Adds contiguous fp32 values in shared memory to global memory, or stores them there (PTX ISA
// 9.7.9.25.4, sm_90). Like tma_store(), the copy joins the issuing thread's open bulk group.
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

// Adds four floats to global memory with one instruction (PTX ISA 9.7.13.8, red of vectors, sm_90).
// The address must be a multiple of 16.

__device__ __forceinline__ void add_four(float* global, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(global), "f"(a),
               "f"(b), "f"(c), "f"(d)
               : "memory");
}

}  // namespace attune
