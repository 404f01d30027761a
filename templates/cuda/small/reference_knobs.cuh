// SPDX-License-Identifier: Apache-2.0
// Default constants of reference, for editors and nvcc. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"
#include "shared/attention_enums.h"

namespace attune {

constexpr int kArch = 80;
constexpr int kWarps = 4;  // warps per block, one row each
constexpr VLayout kVLayout = VLayout::kRows;
constexpr int kScaleBlockQ = 0;  // rows of Q that share a factor; 0 = all
constexpr int kScaleBlockKv = 0;

}  // namespace attune
