// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read the kernels of this folder as they are. The renderer replaces this file with the
// constants of one kernel.
#pragma once

#include "cpu/parts/default_spec.hpp"

namespace attune {

// append_kv
constexpr bool kHasPages = true;
constexpr int kPageRows = 16;
constexpr bool kHasBegins = false;
constexpr Dtype kDtypeTable = Dtype::kFp32;
constexpr int kTurned = 64;
constexpr bool kInterleaved = false;
constexpr bool kTurnsQ = true;
constexpr bool kMakesFactors = false;

// backward_lists
constexpr bool kValuesInKeys = false;

// backward_reference
constexpr bool kGradientQ = true, kGradientK = true, kGradientV = true;
constexpr int kScoreGradient = 1, kRepeats = 0;  // shared/score_gradient.h

// block_map
constexpr int kRows = 8;

// quantise
constexpr Rotation kRotation = Rotation::kHadamard;
constexpr int kKeep = 1;
constexpr int kTileRows = 64;
constexpr long long kScratchFloats = 4096;

}  // namespace attune
