// SPDX-License-Identifier: Apache-2.0
// Default constants of append_kv, for editors and nvcc. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr int kArch = 90;
constexpr Dtype kDtypeQ = Dtype::kBf16;
constexpr Dtype kDtypeKv = Dtype::kBf16;
constexpr Dtype kDtypeO = Dtype::kBf16;
constexpr int kHeadDimQk = 128;
constexpr int kHeadDimV = 128;
constexpr bool kHasPages = true;
constexpr int kPageRows = 16;
constexpr bool kHasBegins = false;
constexpr Dtype kDtypeTable = Dtype::kFp32;
constexpr int kTurned = 128;
constexpr bool kInterleaved = false;
constexpr bool kTurnsQ = true;
constexpr bool kMakesFactors = false;

constexpr int kLanes = 16;
constexpr int kThreads = 256;

}  // namespace attune
