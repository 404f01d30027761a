// SPDX-License-Identifier: Apache-2.0
// Prefetch of global memory into L2 (PTX ISA 9.7.9.15).
#pragma once

namespace attune {

constexpr int kPrefetchedBytes = 128;  // a line of the cache

__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace attune
