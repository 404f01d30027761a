// SPDX-License-Identifier: Apache-2.0
// Default constants of decode_sm80, for editors and nvcc. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 80;
constexpr bool kHasPages = true;
constexpr int kPageRows = 16;
constexpr bool kHasBegins = false;
constexpr bool kHasKeyBegins = false;
// True in kernels that have kScored. kScored chooses includes; kIsScored is in every kernel.
constexpr bool kIsScored = false;
constexpr bool kValuesInKeys = false;
constexpr int kRows = 16;

constexpr int kWarps = 8;
constexpr int kTeam = 8;
constexpr int kHeads = 1;
constexpr int kKeys = 16;
constexpr int kKvSlots = 2;
constexpr int kBlocksPerSm = 1;
constexpr int kMinTiles = 8;
constexpr int kTileOverhead = 4;
constexpr int kLoads = 0;
constexpr int kWaits = 0;

}  // namespace attune
