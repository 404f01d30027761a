// SPDX-License-Identifier: Apache-2.0
// Maps the 64 rows of a warpgroup to rows of Q, for the sm_90 kernels. The heads of a group read
// the same K and V, so a tile may hold fewer rows of kPackHeads heads instead of more rows of one
// head. Such a tile spans fewer keys of a mask or a window, and a few queries fill it better.
//
// | row of the warpgroup | 0 .. kHeadRows - 1        | kHeadRows .. 2 kHeadRows - 1  | ...  |
// | row and head of Q    | the same rows, first head | the same rows, the next head  |      |
//
// TMA loads and stores a box of kPackHeads heads in this order. If a group's number of heads does
// not divide 64, the whole group shares a tile that has more places than heads. The rows of the
// last kPackHeads - kGqaRatio places are idle: they hold zeros as Q (clear_idle_rows), and their
// results are not stored.
#pragma once

#include "cuda/sm90/sm90_layout.cuh"

namespace attune {

static_assert(
    kWarpgroupRows % kPackHeads == 0 && (kGqaRatio % kPackHeads == 0 || kPackHeads > kGqaRatio),
    "pack_heads divides the 64 rows of a warpgroup, and the heads of a group or is more than them");

// Rows of each head in a warpgroup, rows of each head in a tile, rows of all heads in a warpgroup.
constexpr int kHeadRows = (kMla ? kRows : kWarpgroupRows) / kPackHeads;
constexpr int kTileRows = kMla ? kHeadRows : kBlockM / kPackHeads;
constexpr int kQueryRows = kHeadRows * kPackHeads;
constexpr bool kHasIdleRows = kPackHeads > kGqaRatio;
constexpr int kTileHeads = kHasIdleRows ? kGqaRatio : kPackHeads;  // heads per tile
constexpr int kHeldRows = kHeadRows * kTileHeads;  // rows of a warpgroup that are not idle

// Returns the first of the two rows that a thread of a warpgroup holds; the second is 8 further
// down.
__device__ __forceinline__ int accumulator_row(int thread) {
  return thread / 32 * 16 + thread % 32 / 4;
}

// Return a thread's row and head of Q, counted from the warpgroup's first row and head. kNextRow
// and kNextHead are the distances to its second row.
__device__ __forceinline__ int thread_row(int thread) {
  const int row = accumulator_row(thread);
  if constexpr (kPackHeads == 1) return row;
  return row % kHeadRows;
}

__device__ __forceinline__ int thread_head(int thread) {
  if constexpr (kPackHeads == 1) return 0;
  return accumulator_row(thread) / kHeadRows;
}

// True if the rows of `head`, counted from the tile's first head, are idle.
__device__ __forceinline__ bool is_idle(int head) { return kHasIdleRows && head >= kTileHeads; }

constexpr int kNextRow = kHeadRows > 8 ? 8 : 0;
constexpr int kNextHead = kHeadRows > 8 ? 0 : 8 / kHeadRows;

}  // namespace attune
