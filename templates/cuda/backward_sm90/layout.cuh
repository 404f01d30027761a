// SPDX-License-Identifier: Apache-2.0
// The compiled-in config of backward_sm90 as constants.
#pragma once

#include "cuda/parts/row_sums.cuh"
#include "shared/layouts/backward_sm90_layout.h"

namespace attune {

constexpr BackwardSm90Layout kRowsLayout =
    backward_sm90_layout({kBlockM, kBlockN, kKSlots, kVSlots, kHeadDimQk, kHeadDimV, true, false});
constexpr int kRowsThreads = (kRowsLayout.warpgroups + 1) * kWarpgroupThreads;

static_assert(kBlockM % kWarpgroupRows == 0 && kKeyBlockN % kWarpgroupRows == 0,
              "tiles that stay have 64 rows for each warpgroup");
static_assert(kBlockN % 16 == 0 && kKeyBlockM % 16 == 0, "a step has whole 16s of rows");
static_assert(kKSlots >= 2 && kQSlots >= 2,
              "a step takes its tile before it gives back that of the step before it");

constexpr int kBarrierWarpgroup = 1;  // first named barrier; each warpgroup has one

// Returns the first of the two rows for which a thread has accumulators, among its warpgroup's 64.
// The second row is 8 further down.
__device__ __forceinline__ int first_accumulator_row() {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  return thread / 32 * 16 + thread % 32 / 4;
}

}  // namespace attune
