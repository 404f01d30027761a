// SPDX-License-Identifier: Apache-2.0
// Family score_gradient_sm80: gradients of biases, slopes and sinks with mma.sync, bf16 and fp16,
// sm_80 and later; fp16 on sm_75. Kernels: templates/cuda/score_gradient_sm80.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& score_gradient_sm80();

}  // namespace attune
