// SPDX-License-Identifier: Apache-2.0
// Which rows of Q the 64 rows of a warpgroup are. The heads of a group read the same K and V, so a
// tile may hold fewer rows of kPackHeads heads instead of more rows of one: it spans fewer keys of
// a mask or a window, and few queries fill it better. Used by the sm_90 kernels.
//
// | row of the warpgroup | 0 .. kHeadRows - 1        | kHeadRows .. 2 kHeadRows - 1  | ...  |
// | row and head of Q    | the same rows, first head | the same rows, the next head  |      |
//
// That is the order in which a box of kPackHeads heads comes and goes through TMA.
#pragma once

#include "cuda/attention/sm90_layout.cuh"

namespace attune {

static_assert(kGqaRatio % kPackHeads == 0 && kWarpgroupRows % kPackHeads == 0,
              "pack_heads divides the heads of a group, and the 64 rows of a warpgroup");

constexpr int kHeadRows = kWarpgroupRows / kPackHeads;  // of each head in a warpgroup
constexpr int kTileRows = kBlockM / kPackHeads;         // of each head in a tile

// First of the two rows that a thread of a warpgroup holds; the second is 8 further down.
__device__ __forceinline__ int accumulator_row(int thread) {
  return thread / 32 * 16 + thread % 32 / 4;
}

// The same as a row and a head of Q, counted from the first ones of the warpgroup, and how far the
// second is from them.
__device__ __forceinline__ int thread_row(int thread) {
  const int row = accumulator_row(thread);
  if constexpr (kPackHeads == 1) return row;
  return row % kHeadRows;
}

__device__ __forceinline__ int thread_head(int thread) {
  if constexpr (kPackHeads == 1) return 0;
  return accumulator_row(thread) / kHeadRows;
}

constexpr int kNextRow = kHeadRows > 8 ? 8 : 0;
constexpr int kNextHead = kHeadRows > 8 ? 0 : 8 / kHeadRows;

}  // namespace attune
