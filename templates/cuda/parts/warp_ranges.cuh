// SPDX-License-Identifier: Apache-2.0
// Finds ranges of captures on a GPU if all lanes of a warp have the same rows and keys: the lanes
// read the elements together.
#pragma once

#include "cuda/parts/score_ranges.cuh"

namespace attune {

template <CaptureType kType, class... Index>
__device__ __forceinline__ auto load_range_of_keys(const ScoreCapture& capture, Index... indices) {
  return load_range<kType>(capture, indices...);
}

}  // namespace attune
