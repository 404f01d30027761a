// SPDX-License-Identifier: Apache-2.0
// Ranges of captures on a GPU where the lanes of a warp have the same rows and keys, and read all
// together.
#pragma once

#include "cuda/attention/score_ranges.cuh"

namespace attune {

template <CaptureType kType, class... Index>
__device__ __forceinline__ auto load_range_of_keys(const ScoreCapture& capture, Index... indices) {
  return load_range<kType>(capture, indices...);
}

}  // namespace attune
