// SPDX-License-Identifier: Apache-2.0
// Default constants of block_map, for editors and nvcc. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr int kWarps = 8;  // per thread block

}  // namespace attune
