// SPDX-License-Identifier: Apache-2.0
// The default config of backward_sm90. By its cost model it is the best config of two kernels, of
// one fused kernel, or of kernels that pass scores through the workspace.
#pragma once

#include "generator/families/backward/backward_sm90_cost.hpp"

namespace attune {

Config backward_sm90_default(const SearchSpace& space, const KernelSpec& spec, const Shape& shape,
                             const DeviceFacts& device);

}  // namespace attune
