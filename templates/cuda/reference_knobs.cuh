// SPDX-License-Identifier: Apache-2.0
// Default constants of reference: what an editor or nvcc sees. The renderer puts the chosen ones in
// this file's place.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr int kArch = 80;
constexpr Dtype kDtypeQ = Dtype::kBf16;
constexpr Dtype kDtypeKv = Dtype::kBf16;
constexpr Dtype kDtypeO = Dtype::kBf16;
constexpr int kHeadDimQk = 128;
constexpr int kHeadDimV = 128;
constexpr int kGqaRatio = 1;
constexpr Mask kMask = Mask::kCausalBottomRight;
constexpr int kWindowLeft = -1;   // -1 = open
constexpr int kWindowRight = -1;  // -1 = open
constexpr int kWarps = 4;         // rows per block, one each

}  // namespace attune
