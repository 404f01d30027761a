// SPDX-License-Identifier: Apache-2.0
// Default constants of cache_sm90, for editors and nvcc. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr bool kHasPages = true;
constexpr int kPageRows = 16;
constexpr bool kHasBegins = false;
constexpr bool kHasKeyBegins = false;

constexpr int kBlockM = 128;
constexpr int kBlockN = 128;
constexpr int kBlocksPerSm = 1;
constexpr int kKvSlots = 2;
constexpr int kKvRing = 0;
constexpr int kOverlap = 1;
constexpr int kPingPong = 1;
constexpr int kScheduler = 3;
constexpr int kL2SectionMb = 0;  // 0: head by head
constexpr int kOStaging = 0;     // a box of O could overwrite rows of the next request
constexpr int kRowMax = 0;
constexpr int kRescaleThreshold = 8;
constexpr int kPackHeads = 1;
constexpr int kKvSplits = 1;  // unused: blocks share steps instead
constexpr int kMinTiles = 4;
constexpr int kTileOverhead = 2;

}  // namespace attune
