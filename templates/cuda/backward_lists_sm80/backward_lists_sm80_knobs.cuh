// SPDX-License-Identifier: Apache-2.0
// Default constants of backward_lists_sm80, for editors and nvcc. The renderer replaces this file
// with the constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr bool kValuesInKeys = false;

constexpr int kHeads = 16;
constexpr int kKeys = 64;
constexpr int kWarps = 4;
constexpr int kBlocksPerSm = 1;
constexpr int kApart = 0;

}  // namespace attune
