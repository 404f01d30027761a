// SPDX-License-Identifier: Apache-2.0
// The family of op block_map on every CUDA arch; see templates/cuda/block_map.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& block_map_cuda();

}  // namespace attune
