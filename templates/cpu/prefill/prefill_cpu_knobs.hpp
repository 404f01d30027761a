// SPDX-License-Identifier: Apache-2.0
// Stands in for the rendered preamble (generator/render/renderer.hpp), so that editors and
// compilers read prefill_cpu.cpp as it is. The values form a valid default: fp32, head dim 64,
// AVX-512.
#pragma once

#include "cpu/parts/default_spec.hpp"

namespace attune {

constexpr int kBlockM = 64;
constexpr int kBlockN = 128;
constexpr int kRows = 6;
constexpr int kVectors = 2;
constexpr int kUnroll = 4;
constexpr int kPackKv = 0;
constexpr int kSchedule = 1;
constexpr int kTiles = 0;  // of prefill_cpu_bf16

constexpr int kVectorBytes = 64;
constexpr long long kScratchBytes = 400000;

}  // namespace attune
