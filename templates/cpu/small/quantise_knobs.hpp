// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read quantise.cpp as it is.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::kFp32;
constexpr Dtype kDtypeO = Dtype::kE4m3;
constexpr int kHeadDimQk = 64;
constexpr VLayout kVLayout = VLayout::kTransposed;
constexpr int kScaleBlockQ = 64;  // 0: one factor for all rows of a head
constexpr Rotation kRotation = Rotation::kHadamard;

constexpr int kKeep = 1;
constexpr int kTileRows = 64;
constexpr long long kScratchFloats = 4096;

}  // namespace attune
