// SPDX-License-Identifier: Apache-2.0
// Finds the blocks of rows that see a group of keys, for kernels whose keys stay. visible_blocks of
// mask.cuh does the reverse.
#pragma once

#include "cuda/parts/mask.cuh"
#include "cuda/parts/none/features.cuh"
#include "shared/visible_rows.h"

namespace attune {

// Returns the blocks of rows that see keys [key_begin, key_end). The last block may have rows past
// the end. These rows need no mask: their L2 is +inf, which hides them. But a caller's program may
// make no number of a row that is not there.
template <int kRows>
__device__ inline BlockRange row_blocks(const AttentionArgs& args, int key_begin, int key_end) {
  if (key_end <= key_begin) return kNoBlocks;
  const RowInterval top = visible_rows(CompiledRule(), args, key_begin);
  const RowInterval bottom = visible_rows(CompiledRule(), args, key_end - 1);
  if (bottom.last < top.first) return kNoBlocks;
  BlockRange range;
  range.begin = top.first / kRows;
  range.end = bottom.last / kRows + 1;
  range.full_begin = (bottom.first + kRows - 1) / kRows;
  range.full_end = top.last >= args.seqlen_q - 1 ? 0x7fffffff : (top.last + 1) / kRows;
  if constexpr (kUserScores) range.full_end = min(range.full_end, args.seqlen_q / kRows);
  return range;
}

}  // namespace attune
