// SPDX-License-Identifier: Apache-2.0
// Loads with an L2 eviction policy for their lines (PTX ISA 9.7.9.18, createpolicy, sm_80), and
// prefetches into L2 (9.7.9.25.4.3 and 9.7.9.27.1.3, sm_90).
#pragma once

#include "cuda/ptx/bulk_copies.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

using L2Policy = unsigned long long;

// Returns a policy under which lines are evicted before others, for data that is read once.
__device__ __forceinline__ L2Policy evict_first_policy() {
  L2Policy policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ L2Policy evict_normal_policy() {
  L2Policy policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void tma_load(unsigned shared_address, const TensorMap& map,
                                         unsigned barrier, TensorCoord at, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address),
      "l"(&map), "r"(barrier), "r"(at.head_dim), "r"(at.row), "r"(at.head), "r"(at.batch),
      "l"(policy)
      : "memory");
}

__device__ __forceinline__ void bulk_load(unsigned shared_address, const void* global,
                                          unsigned bytes, unsigned barrier, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address),
      "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

template <int kPrefetchBytes>
__device__ __forceinline__ void cp_async_16(unsigned shared_address, const void* global, int bytes,
                                            L2Policy policy) {
  static_assert(kPrefetchBytes == 0 || kPrefetchBytes == 128, "the hint is 0 or 128 bytes");
  if constexpr (kPrefetchBytes == 128) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(
                     shared_address),
                 "l"(global), "r"(bytes), "l"(policy)
                 : "memory");
  } else {
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared_address),
        "l"(global), "r"(bytes), "l"(policy)
        : "memory");
  }
}

// Prefetches a box into L2. Another kernel may still write the box, because L2 receives later
// writes too.
__device__ __forceinline__ void tma_prefetch(const TensorMap& map, TensorCoord at,
                                             L2Policy policy) {
  asm volatile(
      "cp.async.bulk.prefetch.tensor.4d.L2.global.L2::cache_hint [%0, {%1, %2, %3, %4}], %5;" ::"l"(
          &map),
      "r"(at.head_dim), "r"(at.row), "r"(at.head), "r"(at.batch), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tma_prefetch(const TensorMap& map, TensorCoord at) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(&map),
               "r"(at.head_dim), "r"(at.row), "r"(at.head), "r"(at.batch)
               : "memory");
}

__device__ __forceinline__ void bulk_prefetch(const void* global, unsigned bytes, L2Policy policy) {
  asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(global),
               "r"(bytes), "l"(policy)
               : "memory");
}

// Prefetch of global memory into L2 (PTX ISA 9.7.9.15).

constexpr int kPrefetchedBytes = 128;  // a line of the cache

__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace attune
