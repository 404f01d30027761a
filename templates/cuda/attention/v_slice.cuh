// SPDX-License-Identifier: Apache-2.0
// Columns of V in slices, for a head_dim_v of which O does not fit the registers: each work tile
// computes kHeadDimV columns of O, one of kVSlices slices of what the operand has, from scores of
// its own. Slices of the same rows follow each other in the order of tiles, so that they read the
// same K at about the same time. Used by every CUDA prefill kernel (knob v_slices).
//
// | slice        | 0 | 1         | ... | the last                                              |
// |--------------|---|-----------|-----|-------------------------------------------------------|
// | first column | 0 | kHeadDimV | ... | kLastVColumn: columns that do not fill it up are left |
// |              |   |           |     | to it and to the slice before, which store the same   |
#pragma once

namespace attune {

// Returns the first column of V and O in the tile of this number, counted with slices.
__device__ __forceinline__ int first_v_column(int tile) {
  const int column = tile % kVSlices * kHeadDimV;
  return column < kLastVColumn ? column : kLastVColumn;
}

}  // namespace attune
