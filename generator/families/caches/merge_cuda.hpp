// SPDX-License-Identifier: Apache-2.0
// merge_cuda: op merge on every CUDA arch. Kernel: templates/cuda/merge.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& merge_cuda();

}  // namespace attune
