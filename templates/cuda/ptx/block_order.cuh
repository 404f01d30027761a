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

// A count in global memory with which blocks take turns. A block that has waited for its number
// sees everything that the blocks before it wrote (PTX ISA 8.10, release and acquire at device
// scope).

// Waits until the count is `turn`. The wait is bounded like waits at barriers; a try takes about a
// microsecond.
__device__ __forceinline__ void await_turn(const int* count, int turn) {
  for (unsigned tries = 0; tries < kMaxBarrierTries; ++tries) {
    int now;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(count) : "memory");
    if (now == turn) return;
  }
  __trap();
}

// Ends a turn. Writes of this thread, and writes of its block that it has seen, are ordered before
// it.
__device__ __forceinline__ void end_turn(int* count) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(count) : "memory");
}

// A counter that tells the last of several groups of threads that all groups have written their
// parts to global memory (PTX ISA 9.7.13.6, atom; 8.9, causality order).

// Returns true for the last of `count` groups; everything that the other groups wrote is then
// visible to it. One thread of the group calls this. A barrier of the group must lie between the
// group's writes and the call, and one between the call and its reads. The counter is 0 before the
// first group and after the last.
__device__ __forceinline__ bool takes_last_ticket(unsigned* counter, int count) {
  const auto last = static_cast<unsigned>(count - 1);
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(last)
               : "memory");
  return before == last;
}

}  // namespace attune
