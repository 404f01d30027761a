// SPDX-License-Identifier: Apache-2.0
// Divides the columns of V into slices, for a head_dim_v so large that O does not fit the
// registers. Each work tile computes one of kVSlices slices of O, kHeadDimV columns, and computes
// the scores again. Tiles of the same rows follow each other in the tile order, so that they read
// the same K at about the same time. Every CUDA prefill kernel uses this file (knob v_slices).
//
// | slice        | 0 | 1         | ... | the last                                              |
// |--------------|---|-----------|-----|-------------------------------------------------------|
// | first column | 0 | kHeadDimV | ... | kLastVColumn: if this overlaps the slice before, both |
// |              |   |           |     | store the same values in the shared columns           |
#pragma once

#include "cuda/parts/none/v_slice.cuh"

namespace attune {

// Returns the first column of V and O in tile `tile`, whose number counts slices.
__device__ __forceinline__ int first_v_column(int tile) {
  const int column = tile % kVSlices * kHeadDimV;
  return column < kLastVColumn ? column : kLastVColumn;
}

}  // namespace attune
