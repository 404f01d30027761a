// SPDX-License-Identifier: Apache-2.0
// Slots of dS that are released by the warps that multiply dS. Two kernels use them: in one a
// separate warpgroup makes dQ (backward_dq_apart.cuh), in the other blocks add to dQ in no fixed
// order (backward_free.cuh).
//
//   warpgroups of keys:   wait ds_empty[slot]; write; arrive on ds_full[slot]
//   warps that multiply:  wait ds_full[slot]; multiply; arrive on ds_empty[slot]
#pragma once

#include "cuda/backward_sm90/backward_ds.cuh"

namespace attune {

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
