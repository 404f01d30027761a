// SPDX-License-Identifier: Apache-2.0
// cp.async of a word, and how a barrier learns of copies (PTX ISA 9.7.9.25.3 and 9.7.13.15.17;
// sm_80, arriving sm_90 as used here).
#pragma once

namespace attune {

// Copies 4 bytes, or writes zero where `bytes` is 0: the global address is not read then. Of this
// thread's group (cp_async.cuh).
__device__ __forceinline__ void cp_async_4(unsigned shared_address, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address), "l"(global),
               "r"(bytes)
               : "memory");
}

// One arrival, of those that the barrier was made for, when all copies of this thread so far have
// come.
__device__ __forceinline__ void cp_async_arrive(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace attune
