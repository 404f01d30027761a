// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and nvcc
// read the kernels of this folder, except quantise.cu, as they are. The renderer replaces this file
// with the constants of one kernel.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr int kWarps = 4;      // warps per block
constexpr int kThreads = 256;  // per block
constexpr VLayout kVLayout = VLayout::kRows;
constexpr int kScaleBlockQ = 0;  // rows of Q that share a factor; 0 = all
constexpr int kScaleBlockKv = 0;

// append_kv, merge
constexpr int kLanes = 16;  // that share a row
constexpr bool kHasPages = true;
constexpr int kPageRows = 16;
constexpr bool kHasBegins = false;
constexpr Dtype kDtypeTable = Dtype::kFp32;
constexpr int kTurned = 128;
constexpr bool kInterleaved = false;
constexpr bool kTurnsQ = true;
constexpr bool kMakesFactors = false;

// backward_reference
constexpr int kScoreGradient = 1, kRepeats = 0;  // shared/score_gradient.h

}  // namespace attune
