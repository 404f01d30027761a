// SPDX-License-Identifier: Apache-2.0
// The columns of K and V that a warp reads and multiplies: all of them, or for wide heads a share.
// The shares of kColumnWarps warps make a head (shared/layouts/decode_layout.h).
#pragma once

#include "cuda/decode_sm80/decode_items.cuh"

namespace attune {

// A warp's share of the first kFirst columns of a head, and then of the others.
template <int kHeadDim, int kFirst>
class ColumnShare {
  static constexpr int kOfFirst = decode_own_columns(kFirst, kColumnWarps);
  static constexpr int kOfOthers = decode_own_columns(kHeadDim - kFirst, kColumnWarps);

 public:
  static constexpr int kCount = kOfFirst + kOfOthers;
  // True if all shares have kCount columns. Else the last may have fewer.
  static constexpr bool kAllExist = kHeadDim == kCount * kColumnWarps;

  // Returns the column of the head that is column `own` of the share.
  static __device__ __forceinline__ int in_head(int own) {
    if constexpr (kColumnWarps == 1) return own;
    if (kOfOthers == 0 || own < kOfFirst) return column_warp() * kOfFirst + own;
    return kFirst + column_warp() * kOfOthers + own - kOfFirst;
  }
  // True if the head has this column.
  static __device__ __forceinline__ bool exists(int own) {
    if constexpr (kAllExist) return true;
    return in_head(own) < (own < kOfFirst ? kFirst : kHeadDim);
  }

  // Returns how many columns of the share's first part the head has.
  static __device__ __forceinline__ int present() {
    if constexpr (kColumnWarps == 1) return kCount;
    return max(min(kFirst - column_warp() * kOfFirst, kOfFirst), 0);
  }

  // True if the head has the columns of a 16-byte chunk. 128 bytes of a row make a panel.
  static __device__ __forceinline__ bool has(int chunk, int panel = 0) {
    return exists((panel * 8 + chunk) * kChunkColumns);
  }
  // Returns the address of this chunk, or of another one if the head does not have it. `row` is the
  // head's address in a row of the cache.
  static __device__ __forceinline__ const char* at(const char* row, int chunk, int panel = 0) {
    if constexpr (kColumnWarps == 1) return row + chunk * 16 + panel * 128;
    return has(chunk, panel) ? row + in_head((panel * 8 + chunk) * kChunkColumns) * kKvBits / 8
                             : row;
  }
};
using KeyColumns = ColumnShare<kHeadDimQk, kColumns.values_in_keys ? kHeadDimV : kHeadDimQk>;
using ValueColumns = ColumnShare<kHeadDimV, kHeadDimV>;
static_assert(KeyColumns::kCount == kColumns.qk && ValueColumns::kCount == kColumns.v,
              "slots have the columns of a share");

}  // namespace attune
