// SPDX-License-Identifier: Apache-2.0
// Which blocks of rows see a group of keys: visible_blocks of mask.cuh the other way round, for
// kernels that keep keys.
#pragma once

#include "cuda/attention/mask.cuh"
#include "shared/visible_rows.h"

namespace attune {

// Keys [key_begin, key_end). The last block may hold rows past the end, and need no mask for their
// sake: L2 hides them.
// But a caller's program may make no number of a row that is not there.  // where kUserScores
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
  range.full_end = min(range.full_end, args.seqlen_q / kRows);  // where kUserScores
  return range;
}

}  // namespace attune
