// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read toy.cpp as it is.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::kFp32;
constexpr int kHeadDimQk = 64;
constexpr int kRows = 4;

}  // namespace attune
