// SPDX-License-Identifier: Apache-2.0
// cp.async of a word, and an arrival at a barrier when copies are complete (PTX ISA 9.7.9.25.3 and
// 9.7.13.15.17; sm_80, but this form of the arrival sm_90).
#pragma once

namespace attune {

// Copies 4 bytes. If `bytes` is 0, writes zero instead and does not read the global address. The
// copy joins this thread's open group (cp_async.cuh).
__device__ __forceinline__ void cp_async_4(unsigned shared_address, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address), "l"(global),
               "r"(bytes)
               : "memory");
}

// Arrives at the barrier once all earlier copies of this thread are complete. This arrival is one
// of the count that the barrier was initialised with.
__device__ __forceinline__ void cp_async_arrive(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace attune
