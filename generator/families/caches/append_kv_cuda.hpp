// SPDX-License-Identifier: Apache-2.0
// append_kv_cuda: op append_kv on every CUDA arch. Kernel: templates/cuda/append_kv.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& append_kv_cuda();

}  // namespace attune
