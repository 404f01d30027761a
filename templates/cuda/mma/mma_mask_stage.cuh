// SPDX-License-Identifier: Apache-2.0
// Applies the mask program of the mma.sync kernels to the scores, only in blocks that a tile sees
// partly. mask_stage.cuh does the same for sm_90; here the fragments are those of mma_prefill.cuh.
#pragma once

#include "cuda/mma/mma_products.cuh"
#include "cuda/mma/tile_state.cuh"
#include "cuda/parts/block_list.cuh"
#include "cuda/parts/block_map.cuh"  // unless kGranules, else granule_lists.cuh
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/parts/score_functions.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "generated/mask_program.h"

namespace attune {

extern "C" __global__ void __launch_bounds__(BlockLister<kGranules>::kThreads, 1)
    attune_map_blocks(const __grid_constant__ BlockMapArgs map,
                      const __grid_constant__ ScoreArgs scores,
                      const __grid_constant__ AttentionArgs args) {
  BlockLister<kGranules>::write<MapTiles<kBlockM, 1, 1>>(scores, args, map, [](int) { return 0; });
}

// Hides the scores of one block. A thread has the rows at 16 m and 16 m + 8 after its first row.
__device__ __forceinline__ void hide_scores(const KernelParts& parts, const TileState& state,
                                            int block, Scores& s) {
  const ScoreArgs& scores = parts.scores;
  const Tile tile = state.tile();
  const int first_row = row_of(tile, 0, 0);
  const int batch = scores.batch0 + tile.batch, head = scores.head0 + tile.head;
  const int kv_head = scores.kv_head0 + tile.head / kGqaRatio;
  const MaskHead on_head = mask_head(scores, batch, head, kv_head);
  const int key = first_column(scores.kv_position0 + block * kBlockN);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int q_idx = scores.q_position0 + first_row + 16 * m + 8 * half;
      const MaskRow on_row = mask_row(scores, on_head, batch, head, kv_head, q_idx);
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int kv_idx = reread(key) + column_of(n) + j;
          const MaskColumn column = mask_column(scores, on_head, batch, head, kv_head, kv_idx);
          if (!mask_element(scores, on_head, on_row, column, batch, head, kv_head, q_idx, kv_idx))
            s[m][n][2 * half + j] = hidden_score();
        }
      }
    }
  }
}

}  // namespace attune
