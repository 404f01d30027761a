// SPDX-License-Identifier: Apache-2.0
// A default problem for editors and compilers, shared by the knobs files of all CPU kernels. Not
// part of rendered sources: the renderer puts the chosen constants in the place of the knobs file
// that includes this.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::kFp32;
constexpr Dtype kDtypeKv = Dtype::kFp32;
constexpr Dtype kDtypeO = Dtype::kFp32;
constexpr int kHeadDimQk = 64;
constexpr int kHeadDimV = 64;
constexpr int kGqaRatio = 1;
constexpr Mask kMask = Mask::kCausalBottomRight;
constexpr int kWindowLeft = -1;   // -1 = open
constexpr int kWindowRight = -1;  // -1 = open
constexpr VLayout kVLayout = VLayout::kRows;
constexpr int kScaleBlockQ = 0;  // rows of Q that share a factor; 0 = all
constexpr int kScaleBlockKv = 0;

}  // namespace attune
