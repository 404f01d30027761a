// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read decode_cpu.cpp as it is.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::kFp32;
constexpr Dtype kDtypeKv = Dtype::kFp32;
constexpr Dtype kDtypeO = Dtype::kFp32;
constexpr int kHeadDimQk = 64;
constexpr int kHeadDimV = 64;
constexpr int kGqaRatio = 4;
constexpr Mask kMask = Mask::kCausalBottomRight;
constexpr int kWindowLeft = -1;
constexpr int kWindowRight = -1;
constexpr bool kHasPages = true;
constexpr int kPageRows = 16;
constexpr bool kHasBegins = false;
constexpr bool kHasKeyBegins = false;

constexpr int kVectors = 1;
constexpr int kVectorBytes = 32;
constexpr int kKeys = 64;
constexpr int kCharge = 1;

}  // namespace attune
