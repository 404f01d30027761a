// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read append_kv.cpp as it is.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::kBf16;
constexpr Dtype kDtypeKv = Dtype::kE4m3;
constexpr Dtype kDtypeO = Dtype::kBf16;
constexpr int kHeadDimQk = 64;
constexpr int kHeadDimV = 64;
constexpr bool kHasPages = true;
constexpr int kPageRows = 16;
constexpr bool kHasBegins = false;
constexpr Dtype kDtypeTable = Dtype::kFp32;
constexpr int kTurned = 64;
constexpr bool kInterleaved = false;
constexpr bool kTurnsQ = true;
constexpr bool kMakesFactors = false;

}  // namespace attune
