// SPDX-License-Identifier: Apache-2.0
// Grids of a launch that run one after the other: none starts early.
#pragma once

namespace none {

__device__ __forceinline__ void wait_for_prior_grid() {}
__device__ __forceinline__ void let_next_grid_start() {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
