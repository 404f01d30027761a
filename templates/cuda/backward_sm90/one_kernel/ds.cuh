// SPDX-License-Identifier: Apache-2.0
// dS^T of a step in shared memory, and dQ = dS K, its product with the keys of both warpgroups. A
// slot holds one panel for each warpgroup of 64 keys. Where a separate warpgroup makes dQ
// (dq_warpgroup.cuh), and where blocks add to dQ in no fixed order (unordered_consumer.cuh), the
// warps that multiply dS release its slots:
//
//   warpgroups of keys:   wait ds_empty[slot]; write; arrive on ds_full[slot]
//   warps that multiply:  wait ds_full[slot]; multiply; arrive on ds_empty[slot]
#pragma once

#include "cuda/backward_sm90/layout.cuh"
#include "cuda/backward_sm90/one_kernel/layout.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

constexpr int kDsPanelBytes = kKeyBlockM * kPanelRowBytes;

// Returns the address of the panels of step `step`.
__device__ __forceinline__ unsigned ds_tile(unsigned shared, unsigned step) {
  return shared + kOneKernelLayout.parts.ds + step % kDsSlots * kOneKernelLayout.parts.ds_bytes;
}

// Signals that this warp has written its part of dS of step `step`. All lanes of the warp call it.
__device__ __forceinline__ void tell_ds(unsigned shared, unsigned step) {
  fence_proxy_async();
  __syncwarp();
  mbarrier_arrive_if(threadIdx.x % 32 == 0,
                     shared + kOneKernelLayout.ds_full + 8 * (step % kDsSlots));
}

// Waits until all warps of both warpgroups of keys have written their part of dS.
__device__ __forceinline__ void await_ds(unsigned shared, unsigned step) {
  mbarrier_wait(shared + kOneKernelLayout.ds_full + 8 * (step % kDsSlots), step / kDsSlots & 1,
                "ds full");
}

// Waits until the slot of step `step` may be written.
__device__ __forceinline__ void await_ds_slot(unsigned shared, unsigned step) {
  mbarrier_wait(shared + kDsEmpty + 8 * (step % kDsSlots), (step / kDsSlots & 1) ^ 1, "ds empty");
}

// Releases the slot of a step. All lanes of a warp call it when dQ of that step is complete.
__device__ __forceinline__ void return_ds_slot(unsigned shared, unsigned step) {
  __syncwarp();
  mbarrier_arrive_if(threadIdx.x % 32 == 0, shared + kDsEmpty + 8 * (step % kDsSlots));
}

// Waits until K of both warpgroups has arrived. `parity`: phase parity of the barriers of K.
__device__ __forceinline__ void await_all_keys(unsigned shared, unsigned parity) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    mbarrier_wait(shared + kOneKernelLayout.parts.first_full + 8 * i, parity, "k_full");
}

// Multiplies dS at `rows` and K at `keys` over the keys of one warpgroup.
template <int kCount>
__device__ __forceinline__ void multiply_ds(float (&dq)[kCount], unsigned rows, unsigned keys,
                                            int adds) {
  const unsigned long long ds = by_rows(rows), k = by_columns<kWarpgroupRows>(keys);
  if constexpr (kDqHalf == DqHalf::kTransposed)
    wgmma_keys_ds(dq, k, ds, adds);
  else
    wgmma_ds_keys(dq, ds, k, adds);
}

// Issues the products of both warpgroups' keys. `rows` and `keys` are dS and K of the first
// warpgroup.
template <int kCount>
__device__ __forceinline__ void issue_dq_product(float (&dq)[kCount], unsigned rows,
                                                 unsigned keys) {
  multiply_ds(dq, rows, keys, 0);
  multiply_ds(dq, rows + kDsPanelBytes, keys + kOneKernelLayout.parts.first_bytes, 1);
  wgmma_commit();
}

}  // namespace attune
