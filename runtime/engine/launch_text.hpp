// SPDX-License-Identifier: Apache-2.0
// Describes the grid and memory of a launch. Used by Plan::explain and by `attune emit`.
#pragma once

#include <string>

#include "generator/kernel_template.hpp"

namespace attune {

// Returns "attune_amax: 128 threads, grid 8x1x1; then 128 threads, grid 4x8x1, 4096 bytes of
// dynamic shared memory"
std::string launch_text(const LaunchPlan& launch);

}  // namespace attune
