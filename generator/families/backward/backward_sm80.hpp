// SPDX-License-Identifier: Apache-2.0
// backward_sm80: gradients of attention with mma.sync for sm_80 and later, and for fp16 on sm_75.
// One kernel makes dQ, another dK and dV. Source: templates/cuda/backward_sm80.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& backward_sm80();

}  // namespace attune
