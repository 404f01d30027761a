// SPDX-License-Identifier: Apache-2.0
// Default constants of index_scores on a CPU, for editors. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::kBf16;
constexpr Dtype kDtypeKv = Dtype::kBf16;
constexpr int kHeadDimQk = 128;
constexpr int kGqaRatio = 64;
constexpr Mask kMask = Mask::kNone;

}  // namespace attune
