// SPDX-License-Identifier: Apache-2.0
// A default problem for editors and nvcc, shared by the knobs files of all CUDA kernels. Not part
// of rendered sources: the renderer puts the chosen constants in the place of the knobs file that
// includes this.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::kFp16;
constexpr Dtype kDtypeKv = Dtype::kFp16;
constexpr Dtype kDtypeO = Dtype::kFp16;
constexpr int kHeadDimQk = 128;
constexpr int kHeadDimV = 128;
constexpr int kGqaRatio = 1;
constexpr Mask kMask = Mask::kCausalBottomRight;
constexpr int kWindowLeft = -1;   // -1 = open
constexpr int kWindowRight = -1;  // -1 = open
constexpr int kVSlices = 1;       // used only if head_dim_v is above 256
constexpr int kLastVColumn = 0;
constexpr int kKParts = 1;  // used only by sm_90 kernels of head dims above 256
// Kernels of gradients:
constexpr bool kGradients = true;
constexpr bool kGradientQ = true, kGradientK = true, kGradientV = true;

}  // namespace attune
