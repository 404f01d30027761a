// SPDX-License-Identifier: Apache-2.0
// The grid and memory of a launch in words. Used by Plan::explain and by `attune emit`.
#pragma once

#include <string>

#include "generator/kernel_template.hpp"

namespace attune {

// "attune_amax: 128 threads, grid 8x1x1; then 128 threads, grid 4x8x1, 4096 bytes of dynamic shared
// memory"
std::string launch_text(const LaunchPlan& launch);

}  // namespace attune
