// SPDX-License-Identifier: Apache-2.0
// Default constants of top_k, for editors and nvcc. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr int kArch = 90;
constexpr Dtype kDtypeQ = Dtype::kFp32;
constexpr Mask kMask = Mask::kNone;

constexpr int kThreads = 512;
constexpr int kVectors = 4;

}  // namespace attune
