// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read merge.cpp as it is.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::kFp32;
constexpr Dtype kDtypeKv = Dtype::kBf16;
constexpr Dtype kDtypeO = Dtype::kFp32;
constexpr int kHeadDimQk = 64;

}  // namespace attune
