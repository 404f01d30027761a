// SPDX-License-Identifier: Apache-2.0
// Default constants of index_scores_sm80, for editors and nvcc. The renderer replaces this file
// with the constants of a config.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr int kArch = 90;
constexpr Dtype kDtypeQ = Dtype::kBf16;
constexpr Dtype kDtypeKv = Dtype::kBf16;
constexpr int kHeadDimQk = 128;
constexpr int kGqaRatio = 64;
constexpr Mask kMask = Mask::kNone;
constexpr bool kUnpack = false;
constexpr int kElementBytes = 2;

constexpr int kTiles = 2;
constexpr int kWarps = 8;
constexpr int kRows = 32;
constexpr int kStages = 2;

}  // namespace attune
