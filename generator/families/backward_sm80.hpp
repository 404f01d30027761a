// SPDX-License-Identifier: Apache-2.0
// backward_sm80: gradients of attention with mma.sync for sm_80 and later, and of fp16 for sm_75, dQ by one kernel, dK and dV by another. Source:
// templates/cuda/backward_sm80.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& backward_sm80();

}  // namespace attune
