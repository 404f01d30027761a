// SPDX-License-Identifier: Apache-2.0
// Named barriers: `bar.sync` waits for `threads` arrivals on one of 16 hardware barriers,
// `bar.arrive` counts without waiting (PTX ISA 9.7.13.1). Barrier 0 is __syncthreads.
#pragma once

namespace attune {

__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Waits like named_barrier_sync. Returns, in every thread, true if any thread passed true.
__device__ __forceinline__ bool named_barrier_any(int id, int threads, bool value) {
  int any;
  asm volatile(
      "{ .reg .pred p, q;\n"
      "setp.ne.u32 p, %3, 0;\n"
      "bar.red.or.pred q, %1, %2, p;\n"
      "selp.s32 %0, 1, 0, q; }"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<int>(value))
      : "memory");
  return any != 0;
}

}  // namespace attune
