// SPDX-License-Identifier: Apache-2.0
// Default spec for kernels of 8-bit operands, like default_spec.cuh.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::kE4m3;
constexpr Dtype kDtypeKv = Dtype::kE4m3;
constexpr Dtype kDtypeO = Dtype::kBf16;
constexpr int kHeadDimQk = 128;
constexpr int kHeadDimV = 128;
constexpr int kGqaRatio = 1;
constexpr Mask kMask = Mask::kCausalBottomRight;
constexpr int kWindowLeft = -1;   // -1 = open
constexpr int kWindowRight = -1;  // -1 = open
constexpr Accuracy kAccuracy = Accuracy::kAccurate;
constexpr VLayout kVLayout = VLayout::kRows;
constexpr int kScaleBlockQ = 0;  // rows that share a factor, 0 = all
constexpr int kScaleBlockKv = 0;

}  // namespace attune
