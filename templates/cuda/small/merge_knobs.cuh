// SPDX-License-Identifier: Apache-2.0
// Default constants of merge, for editors and nvcc. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr int kArch = 90;
constexpr Dtype kDtypeQ = Dtype::kFp32;
constexpr Dtype kDtypeKv = Dtype::kBf16;
constexpr Dtype kDtypeO = Dtype::kFp32;
constexpr int kHeadDimQk = 128;

constexpr int kLanes = 8;
constexpr int kThreads = 256;

}  // namespace attune
