// SPDX-License-Identifier: Apache-2.0
// Which rows of Q the 64 rows of a warpgroup are. The heads of a group read the same K and V, so a
// tile may hold fewer rows of kPackHeads heads instead of more rows of one: it spans fewer keys of
// a mask or a window, and few queries fill it better. Used by the sm_90 kernels.
//
// | row of the warpgroup | 0 .. kHeadRows - 1        | kHeadRows .. 2 kHeadRows - 1  | ...  |
// | row and head of Q    | the same rows, first head | the same rows, the next head  |      |
//
// That is the order in which a box of kPackHeads heads comes and goes through TMA. A group whose
// number of heads does not divide 64 shares a tile whole, beside places that stay empty: the rows
// of the last kPackHeads - kGqaRatio heads are idle. They hold zeros of Q (clear_idle_rows), and
// nothing of them is stored.
#pragma once

#include "cuda/attention/sm90_layout.cuh"

namespace attune {

static_assert(
    kWarpgroupRows % kPackHeads == 0 && (kGqaRatio % kPackHeads == 0 || kPackHeads > kGqaRatio),
    "pack_heads divides the 64 rows of a warpgroup, and the heads of a group or is more than them");

// Rows of each head in a warpgroup, rows of each head in a tile, rows of all heads in a warpgroup.
constexpr int kHeadRows = kWarpgroupRows / kPackHeads;  // unless kMla
constexpr int kTileRows = kBlockM / kPackHeads;         // unless kMla
#ifdef ATTUNE_MLA                                       // where kMla
constexpr int kHeadRows = kRows / kPackHeads;           // where kMla
constexpr int kTileRows = kHeadRows;                    // where kMla
#endif                                                  // where kMla
constexpr int kQueryRows = kHeadRows * kPackHeads;      // where kCacheArgs
constexpr bool kHasIdleRows = kPackHeads > kGqaRatio;
constexpr int kTileHeads = kHasIdleRows ? kGqaRatio : kPackHeads;  // that a tile holds
constexpr int kHeldRows = kHeadRows * kTileHeads;  // rows of a warpgroup that are not idle

// First of the two rows that a thread of a warpgroup holds; the second is 8 further down.
__device__ __forceinline__ int accumulator_row(int thread) {
  return thread / 32 * 16 + thread % 32 / 4;
}

// Row and head of Q of a thread, counted from the first ones of the warpgroup, and the distance to
// its second row.
__device__ __forceinline__ int thread_row(int thread) {
  const int row = accumulator_row(thread);
  if constexpr (kPackHeads == 1) return row;
  return row % kHeadRows;
}

__device__ __forceinline__ int thread_head(int thread) {
  if constexpr (kPackHeads == 1) return 0;
  return accumulator_row(thread) / kHeadRows;
}

// `head` counts from the tile's first one.
__device__ __forceinline__ bool is_idle(int head) { return kHasIdleRows && head >= kTileHeads; }

constexpr int kNextRow = kHeadRows > 8 ? 8 : 0;
constexpr int kNextHead = kHeadRows > 8 ? 0 : 8 / kHeadRows;

}  // namespace attune
