// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read backward_cpu.cpp as it is.
#pragma once

#include "cpu/parts/default_spec.hpp"

namespace attune {

constexpr bool kGradientQ = true, kGradientK = true, kGradientV = true;

constexpr int kBlockM = 32;
constexpr int kBlockN = 128;
constexpr int kRows = 6;
constexpr int kVectors = 2;
constexpr int kUnroll = 4;
constexpr int kPasses = 1;

constexpr int kVectorBytes = 64;
constexpr long long kScratchBytes = 1000000;

}  // namespace attune
