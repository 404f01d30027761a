// SPDX-License-Identifier: Apache-2.0
// Default constants of quantise, for editors and nvcc. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr int kArch = 90;
constexpr Dtype kDtypeQ = Dtype::kBf16;
constexpr Dtype kDtypeO = Dtype::kE4m3;
constexpr int kHeadDimQk = 128;
constexpr VLayout kVLayout = VLayout::kRows;
constexpr int kScaleBlockQ = 128;  // 0: one factor for all rows of a head
constexpr Rotation kRotation = Rotation::kHadamard;

constexpr int kFused = 1;
constexpr int kRows = 128;
constexpr int kVector = 16;
constexpr int kThreads = 256;

}  // namespace attune
