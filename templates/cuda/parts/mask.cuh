// SPDX-License-Identifier: Apache-2.0
// Finds the keys that a query row sees under the compiled mask and window (shared/visibility.h),
// and the blocks of keys that a group of rows must visit. Every CUDA prefill kernel uses this file.
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

// A range of blocks of kColumns columns, counted from an origin. Blocks [begin, end) have a column
// that some row of a group sees. In blocks [full_begin, full_end) every row sees every column, so
// no mask is applied.
struct BlockRange {
  int begin;
  int end;
  int full_begin;
  int full_end;
  __device__ bool contains(int block) const { return block >= begin && block < end; }
  __device__ bool needs_mask(int block) const { return block < full_begin || block >= full_end; }
};

// The range of a group of rows that sees no key. Code that still computes a block hides all its
// columns: needs_mask() is true for every block.
constexpr BlockRange kNoBlocks{0, 0, 0x7fffffff, 0};

// Returns the blocks that rows [row_begin, row_end) visit, with row_end <= seqlen_q. An empty group
// of rows visits no block. No row sees a column before `origin`.
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

// Two values that every online softmax shares. A hidden score is -inf. A row maximum begins at
// kLowestMax and never falls below it. kLowestMax is finite, so -inf - (-inf) cannot arise. A row
// that has seen no key has probabilities exp2(-inf + 2^120) = 0 and sum 0.
constexpr float kLowestMax = -1.329227995784916e36f;  // -2^120

__device__ __forceinline__ float hidden_score() { return -__int_as_float(0x7f800000); }

}  // namespace attune
