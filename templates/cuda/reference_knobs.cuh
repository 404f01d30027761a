// SPDX-License-Identifier: Apache-2.0
// Default constants of reference: what an editor or nvcc sees. The renderer puts the chosen ones in
// this file's place.
#pragma once

#include "cuda/default_spec.cuh"
#include "shared/fp8_options.h"

namespace attune {

constexpr int kArch = 80;
constexpr int kWarps = 4;  // rows per block, one each
constexpr VLayout kVLayout = VLayout::kRows;
constexpr int kScaleBlockQ = 0;  // rows of Q that share a factor; 0 = all
constexpr int kScaleBlockKv = 0;

}  // namespace attune
