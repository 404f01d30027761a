// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read reference_cpu.cpp as it is.
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
constexpr int kWindowLeft = -1;
constexpr int kWindowRight = -1;
constexpr VLayout kVLayout = VLayout::kRows;
constexpr int kScaleBlockQ = 0;
constexpr int kScaleBlockKv = 0;

}  // namespace attune
