// SPDX-License-Identifier: Apache-2.0
// quantise_cuda: op quantise on every CUDA arch. Kernel: templates/cuda/quantise.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& quantise_cuda();

}  // namespace attune
