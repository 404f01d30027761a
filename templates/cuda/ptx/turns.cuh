// SPDX-License-Identifier: Apache-2.0
// A count in global memory with which blocks take turns. A block that has waited for its number
// sees everything that the blocks before it wrote (PTX ISA 8.10, release and acquire at device
// scope).
#pragma once

#include "cuda/ptx/mbarrier.cuh"

namespace attune {

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

}  // namespace attune
