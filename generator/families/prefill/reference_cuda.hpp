// SPDX-License-Identifier: Apache-2.0
// reference_cuda: the tuner's oracle on a GPU, for every CUDA arch, in fp32, bf16, fp16 and 8 bits.
// Kernel: templates/cuda/reference.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& reference_cuda();

}  // namespace attune
