// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch (PTX ISA 9.7.13.13, sm_90): a kernel that was launched to start
// early waits for the preceding grid. That grid says when its successor may start.
#pragma once

namespace attune {

// Waits until the preceding grid has ended and its writes are visible. Returns at once if there is
// none.
__device__ __forceinline__ void wait_for_prior_grid() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the next grid start once every block has ended or one of its threads has called this.
__device__ __forceinline__ void let_next_grid_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace attune
