// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read block_map.cpp as it is.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr int kGqaRatio = 1;
constexpr int kRows = 8;

}  // namespace attune
