// SPDX-License-Identifier: Apache-2.0
// A word in global memory with which one of many threads claims work that must come first, and the
// others learn when it is done (PTX ISA 8.10, release and acquire at device scope). This work and
// the work that waits for it are bulk copies, so both sides have a proxy fence.
#pragma once

#include "cuda/ptx/mbarrier.cuh"

namespace attune {

enum class Claim : int { kNone, kTaken, kDone };  // values of the word: 0, 1, 2; it begins as 0

// Returns the word from L2, without an acquire, because each acquire would invalidate L1. kDone
// suffices for a bulk copy that adds to the stored values: their store was performed in L2 when the
// word was written, and neither copy uses L1.
__device__ __forceinline__ Claim glance_at_claim(const int* word) {
  int now;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
  return static_cast<Claim>(now);
}

__device__ __forceinline__ Claim look_at_claim(const int* word) {
  int now;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1]; fence.proxy.async.global;"
               : "=r"(now)
               : "l"(word)
               : "memory");
  return static_cast<Claim>(now);
}

// Ends a claim. Everything that this thread has done and waited for is ordered before it.
__device__ __forceinline__ void end_claim(int* word) {
  asm volatile("fence.proxy.async.global; st.release.gpu.global.s32 [%0], 2;" ::"l"(word)
               : "memory");
}

// Claims the word and returns its old value. kNone: this thread is the first, and must end the
// claim.
__device__ __forceinline__ Claim claim(int* word) {
  int was;
  asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 0, 1; fence.proxy.async.global;"
               : "=r"(was)
               : "l"(word)
               : "memory");
  return static_cast<Claim>(was);
}

// Waits until the first thread has ended its claim. The wait is bounded like waits at barriers; a
// try takes about a microsecond.
__device__ __forceinline__ void await_claim(const int* word) {
  for (unsigned tries = 0; tries < kMaxBarrierTries; ++tries)
    if (look_at_claim(word) == Claim::kDone) return;
  __trap();
}

}  // namespace attune
