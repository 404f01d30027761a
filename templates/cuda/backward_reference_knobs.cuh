// SPDX-License-Identifier: Apache-2.0
// Default constants of backward_reference: what an editor or nvcc sees. The renderer puts the
// chosen ones in this file's place.
#pragma once

#include "cuda/default_spec.cuh"

namespace attune {

constexpr int kArch = 80;
constexpr int kWarps = 4;  // rows per block, one each
constexpr bool kGradients = true;
constexpr bool kGradientQ = true, kGradientK = true, kGradientV = true;
constexpr int kScoreGradient = 1, kRepeats = 0;  // shared/score_gradient.h

}  // namespace attune
