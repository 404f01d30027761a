// SPDX-License-Identifier: Apache-2.0
// Default constants of backward_reference, for editors and nvcc. The renderer replaces this file
// with the constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 80;
constexpr int kWarps = 4;  // warps per block, one row each
constexpr bool kGradients = true;
constexpr bool kGradientQ = true, kGradientK = true, kGradientV = true;
constexpr int kScoreGradient = 1, kRepeats = 0;  // shared/score_gradient.h

}  // namespace attune
