// SPDX-License-Identifier: Apache-2.0
// A word in global memory by which one thread of many does something first, and the others learn
// when it is done (PTX ISA 8.10, release and acquire at the scope of the device). What is done and
// what comes behind it are bulk copies: a fence of proxies stands on either side.
#pragma once

#include "cuda/ptx/mbarrier.cuh"

namespace attune {

enum class Claim : int { kNone, kTaken, kDone };  // of a word that was zeroed: 0, 1, 2

// Returns the word as L2 has it, without an acquire, which would invalidate L1 each time. kDone
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

// Ends a claim: all that this thread has done and waited for is ordered before it.
__device__ __forceinline__ void end_claim(int* word) {
  asm volatile("fence.proxy.async.global; st.release.gpu.global.s32 [%0], 2;" ::"l"(word)
               : "memory");
}

// Claims the word and returns its old value. kNone: this thread is the first, and ends the claim.
__device__ __forceinline__ Claim claim(int* word) {
  int was;
  asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 0, 1; fence.proxy.async.global;"
               : "=r"(was)
               : "l"(word)
               : "memory");
  return static_cast<Claim>(was);
}

// Waits until the first has ended its claim. Bounded as waits at barriers are: a try takes about a
// microsecond.
__device__ __forceinline__ void await_claim(const int* word) {
  for (unsigned tries = 0; tries < kMaxBarrierTries; ++tries)
    if (look_at_claim(word) == Claim::kDone) return;
  __trap();
}

}  // namespace attune
