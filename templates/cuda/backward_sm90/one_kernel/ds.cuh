// SPDX-License-Identifier: Apache-2.0
// dS^T of a step in shared memory, the operand of dQ. A slot holds one panel for each warpgroup of
// 64 keys. Where a separate warpgroup makes dQ (dq_warpgroup.cuh), and where blocks add to dQ in no
// fixed order (unordered_consumer.cuh), the warps that multiply dS release its slots:
//
//   warpgroups of keys:   wait ds_empty[slot]; write; arrive on ds_full[slot]
//   warps that multiply:  wait ds_full[slot]; multiply; arrive on ds_empty[slot]
#pragma once

#include "cuda/backward_sm90/ds_panel.cuh"
#include "cuda/backward_sm90/one_kernel/layout.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

constexpr int kDsPanelBytes = kKeyBlockM * kPanelRowBytes;

// Returns the address of the panels of step `step`.
__device__ __forceinline__ unsigned ds_tile(unsigned shared, unsigned step) {
  return shared + kFusedLayout.parts.ds + step % kDsSlots * kFusedLayout.parts.ds_bytes;
}

// Signals that this warp has written its part of dS of step `step`. All lanes of the warp call it.
__device__ __forceinline__ void tell_ds(unsigned shared, unsigned step) {
  fence_proxy_async();
  __syncwarp();
  mbarrier_arrive_if(threadIdx.x % 32 == 0, shared + kFusedLayout.ds_full + 8 * (step % kDsSlots));
}

// Waits until all warps of both warpgroups of keys have written their part of dS.
__device__ __forceinline__ void await_ds(unsigned shared, unsigned step) {
  mbarrier_wait(shared + kFusedLayout.ds_full + 8 * (step % kDsSlots), step / kDsSlots & 1,
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

}  // namespace attune
