// SPDX-License-Identifier: Apache-2.0
// The constants of index_scores_sm80 for its test on the host, as CMakeLists.txt defines them.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::INDEX_DTYPE;
constexpr int kHeadDimQk = INDEX_HEAD_DIM;
constexpr int kGqaRatio = INDEX_HEADS;
constexpr Mask kMask = Mask::INDEX_MASK;
constexpr int kElementBytes = kDtypeQ == Dtype::kE4m3 ? 1 : 2;
constexpr bool kUnpack = INDEX_UNPACK;

constexpr int kTiles = INDEX_TILES;
constexpr int kWarps = 2;
constexpr int kRows = 8;
constexpr int kStages = INDEX_STAGES;

}  // namespace attune
