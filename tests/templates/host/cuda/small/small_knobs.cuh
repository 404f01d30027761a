// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/small/small_knobs.cuh where append_kv is compiled for the host:
// the constants of one test.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr int kArch = 80;
constexpr Dtype kDtypeQ = Dtype::APPEND_DTYPE;
constexpr Dtype kDtypeKv = Dtype::APPEND_CACHE;
constexpr Dtype kDtypeO = Dtype::APPEND_DTYPE;
constexpr int kHeadDimQk = APPEND_DIM;
constexpr int kHeadDimV = 64;
constexpr bool kHasPages = APPEND_PAGE > 0;
constexpr int kPageRows = APPEND_PAGE > 0 ? APPEND_PAGE : 1;
constexpr bool kHasBegins = APPEND_PACKED;
constexpr Dtype kDtypeTable = Dtype::kFp32;
constexpr int kTurned = APPEND_TURNED;
constexpr bool kInterleaved = APPEND_INTERLEAVED;
constexpr bool kTurnsQ = APPEND_TURNED > 0;
constexpr bool kHeadFactors = kDtypeKv != kDtypeQ;

#ifdef APPEND_GROUP
constexpr bool kGroupFactors = true;
constexpr int kGroupColumns = APPEND_GROUP;
#else
constexpr int kGroupColumns = 16;
#endif

constexpr int kLanes = APPEND_LANES;
constexpr int kThreads = 64;

}  // namespace attune
