// SPDX-License-Identifier: Apache-2.0
// backward_reference_cuda: gradients of attention from the definition, on every CUDA arch. The last
// resort of a call; tests compare other kernels with it.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& backward_reference_cuda();

}  // namespace attune
