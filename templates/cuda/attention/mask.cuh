// SPDX-License-Identifier: Apache-2.0
// Which keys a query row sees under the mask and window that are compiled in
// (shared/visibility.h), and which blocks of keys a group of rows must visit. Used by every CUDA
// prefill kernel.
#pragma once

#include "shared/attention_args.h"
#include "shared/attention_enums.h"
#include "shared/visibility.h"

namespace attune {

constexpr bool kIsCausal = kMask != Mask::kNone;
constexpr bool kHasLeftLimit = kWindowLeft >= 0;
constexpr bool kHasRightLimit = kIsCausal || kWindowRight >= 0;
// True if a row may see no key while others of its tile see some.
constexpr bool kSomeRowsSeeNothing =
    kHasLeftLimit || (kHasRightLimit && kMask != Mask::kCausalTopLeft);

struct CompiledRule {
  static constexpr Mask mask = kMask;
  static constexpr int window_left = kWindowLeft;
  static constexpr int window_right = kWindowRight;
};

__device__ inline KeyInterval<int> visible_keys(const AttentionArgs& args, int row) {
  return visible_keys(CompiledRule(), args, row);
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

// The range of a group that sees nothing. Code that computes a block of it hides every column: each
// is before the full ones and behind them.
constexpr BlockRange kNoBlocks{0, 0, 0x7fffffff, 0};

// Rows [row_begin, row_end), row_end <= seqlen_q; an empty group of rows visits nothing. No row
// sees a column before `origin`.
template <int kColumns>
__device__ inline BlockRange visible_blocks(const AttentionArgs& args, int row_begin, int row_end,
                                            int origin = 0) {
  if (row_end <= row_begin) return kNoBlocks;
  const KeyInterval<int> top = visible_keys(args, row_begin);
  const KeyInterval<int> bottom = visible_keys(args, row_end - 1);
  if (bottom.last < top.first) return kNoBlocks;
  BlockRange range;
  range.begin = (top.first - origin) / kColumns;
  range.end = (bottom.last - origin) / kColumns + 1;
  range.full_begin = (bottom.first - origin + kColumns - 1) / kColumns;
  range.full_end = top.last < origin ? 0 : (top.last - origin + 1) / kColumns;
  return range;
}

}  // namespace attune
