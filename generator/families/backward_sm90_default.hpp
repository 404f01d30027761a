// SPDX-License-Identifier: Apache-2.0
// The default config of backward_sm90: the best by its cost model of two kernels, of one that makes all, and of kernels with scores between
// them in the workspace.
#pragma once

#include "generator/families/backward_sm90_cost.hpp"

namespace attune {

Config backward_sm90_default(const SearchSpace& space, const KernelSpec& spec, const Shape& shape,
                             const DeviceFacts& device);

}  // namespace attune
