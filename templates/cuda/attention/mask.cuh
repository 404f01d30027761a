// SPDX-License-Identifier: Apache-2.0
// Which key columns a query row sees, and which blocks of columns a group of rows must visit. The
// rules are those of shared/attention_enums.h; the mask and the window are compiled in. Used by
// every CUDA prefill kernel.
#pragma once

#include "shared/attention_args.h"
#include "shared/attention_enums.h"

namespace attune {

constexpr bool kIsCausal = kMask != Mask::kNone;
constexpr bool kHasLeftLimit = kWindowLeft >= 0;
constexpr bool kHasRightLimit = kIsCausal || kWindowRight >= 0;
// Whether a row may see no key while others of its tile see some.
constexpr bool kSomeRowsSeeNothing =
    kHasLeftLimit || (kHasRightLimit && kMask != Mask::kCausalTopLeft);
// Column on the diagonal of row 0.
__device__ inline int diagonal_offset(const AttentionArgs& args) {
  return kMask == Mask::kCausalTopLeft ? 0 : args.seqlen_kv - args.seqlen_q;
}

// Columns [first, last] are visible; none when last < first.
struct VisibleColumns {
  int first;
  int last;
  __device__ bool contains(int column) const { return column >= first && column <= last; }
};

__device__ inline VisibleColumns visible_columns(const AttentionArgs& args, int row) {
  const int diagonal = row + diagonal_offset(args);
  VisibleColumns columns{0, args.seqlen_kv - 1};
  if constexpr (kHasLeftLimit) columns.first = diagonal > kWindowLeft ? diagonal - kWindowLeft : 0;
  if constexpr (kIsCausal) {  // ends at the diagonal whatever the window says
    columns.last = min(columns.last, diagonal);
  } else if constexpr (kHasRightLimit) {
    columns.last = static_cast<int>(
        min(static_cast<long long>(columns.last), static_cast<long long>(diagonal) + kWindowRight));
  }
  return columns;
}

// Blocks of kColumns columns, counted from an origin: [begin, end) hold something visible to some
// row of a group of rows; in [full_begin, full_end) every row sees every column, so no mask is
// applied there.
struct BlockRange {
  int begin;
  int end;
  int full_begin;
  int full_end;
  __device__ bool contains(int block) const { return block >= begin && block < end; }
  __device__ bool needs_mask(int block) const { return block < full_begin || block >= full_end; }
};

// Rows [row_begin, row_end), row_end <= seqlen_q; an empty group of rows visits nothing. No row
// sees a column before `origin`.
template <int kColumns>
__device__ inline BlockRange visible_blocks(const AttentionArgs& args, int row_begin, int row_end,
                                            int origin = 0) {
  if (row_end <= row_begin) return {0, 0, 0, 0};
  const VisibleColumns top = visible_columns(args, row_begin);
  const VisibleColumns bottom = visible_columns(args, row_end - 1);
  if (bottom.last < top.first) return {0, 0, 0, 0};
  BlockRange range;
  range.begin = (top.first - origin) / kColumns;
  range.end = (bottom.last - origin) / kColumns + 1;
  range.full_begin = (bottom.first - origin + kColumns - 1) / kColumns;
  range.full_end = top.last < origin ? 0 : (top.last - origin + 1) / kColumns;
  return range;
}

}  // namespace attune
