// SPDX-License-Identifier: Apache-2.0
// Barriers and accumulators that the kernels of all families of gradients on Hopper have.
#pragma once

#include "cuda/parts/row_sums.cuh"
#include "shared/layouts/backward_sm90_layout.h"

namespace attune {

constexpr int kBarrierWarpgroup = 1;  // first named barrier; each warpgroup has one

// Returns the first of the two rows for which a thread has accumulators, among its warpgroup's 64.
// The second row is 8 further down.
__device__ __forceinline__ int first_accumulator_row() {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  return thread / 32 * 16 + thread % 32 / 4;
}

}  // namespace attune
