// SPDX-License-Identifier: Apache-2.0
// Default constants of mla_sm90, for editors and nvcc. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr bool kHasPages = true;
constexpr int kPageRows = 64;
constexpr bool kHasBegins = false;
constexpr bool kHasKeyBegins = false;
constexpr bool kMla = true;

constexpr int kScheduler = 3;
constexpr int kRows = 64;
constexpr int kPackHeads = 1;
constexpr int kMinTiles = 2;
constexpr int kTileOverhead = 1;

// Constants for the parts that prefill_sm90 shares.
constexpr int kBlockM = 64;
constexpr int kBlockN = 64;
constexpr int kBlocksPerSm = 1;
constexpr int kKvSlots = 2;
constexpr int kKvRing = 0;
constexpr int kOverlap = 0;
constexpr int kL2SectionMb = 0;
constexpr int kOStaging = 0;
constexpr int kRescaleThreshold = 8;
constexpr int kKvSplits = 1;

}  // namespace attune
