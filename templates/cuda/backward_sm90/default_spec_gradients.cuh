// SPDX-License-Identifier: Apache-2.0
// Default constants that the four families of gradients on Hopper share, for editors and nvcc.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr bool kGradients = true;
constexpr bool kGradientQ = true, kGradientK = true, kGradientV = true;
constexpr int kL2SectionMb = 32;  // MB of streamed operands, for heads processed together

}  // namespace attune
