// SPDX-License-Identifier: Apache-2.0
// Applies the mask program of an sm_90 kernel to scores: in blocks alone of which its rows see a part (shared/block_map.h). What the
// program needs of a row is computed in each of them, so that the steps between hold no registers for it.
#pragma once

#include "cuda/attention/block_list.cuh"
#include "cuda/attention/kernel_parts.cuh"
#include "cuda/attention/score_functions.cuh"
#include "cuda/attention/score_values.cuh"
#include "cuda/attention/tile_rows.cuh"
#include "cuda/attention/tile_stream.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "generated/mask_program.h"

namespace attune {

// For the warpgroup whose rows begin at `first_row`, and the keys from `first_key` on.
template <int kCount>
__device__ __forceinline__ void hide_scores(const KernelParts& parts, const PrefillTile& tile,
                                            int first_row, int first_key, float (&s)[kCount]) {
  const ScoreArgs& scores = parts.scores;
  const int thread = reread_thread_index() % kWarpgroupThreads;
  const int batch = scores.batch0 + tile.batch;
  const int kv_head = scores.kv_head0 + tile.head / kGqaRatio;
  const int head = scores.head0 + tile.head + thread_head(thread), below = head + kNextHead;
  const int q_idx = scores.q_position0 + first_row + thread_row(thread);
  const int q_below = q_idx + kNextRow;
  const MaskHead on_head[2] = {mask_head(scores, batch, head, kv_head),
                               mask_head(scores, batch, below, kv_head)};
  const MaskRow on_row[2] = {mask_row(scores, on_head[0], batch, head, kv_head, q_idx),
                             mask_row(scores, on_head[1], batch, below, kv_head, q_below)};
  const int key = scores.kv_position0 + first_key + thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int kv_idx = reread(key) + i / 4 * 8 + j;  // addresses of one column at a time
      const MaskColumn column = mask_column(scores, on_head[0], batch, head, kv_head, kv_idx);
      if (!mask_element(scores, on_head[0], on_row[0], column, batch, head, kv_head, q_idx, kv_idx))
        s[i + j] = hidden_score();
      const MaskColumn of_below =
          kNextHead == 0 ? column : mask_column(scores, on_head[1], batch, below, kv_head, kv_idx);
      if (!mask_element(scores, on_head[1], on_row[1], of_below, batch, below, kv_head, q_below,
                        kv_idx))
        s[i + j + 2] = hidden_score();
    }
  }
}

}  // namespace attune
