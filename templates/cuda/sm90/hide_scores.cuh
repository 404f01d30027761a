// SPDX-License-Identifier: Apache-2.0
// Hides scores of a block that the warpgroup's rows see partly: by a mask program, or by a block
// map as the only mask.
#pragma once

#include "cuda/parts/block_map.cuh"  // unless kGranules, else granule_lists.cuh
#include "cuda/parts/none/features.cuh"
#include "cuda/sm90/mask_stage.cuh"  // unless kHidesByMap, else granule_stage.cuh
#include "cuda/sm90/tile_stream.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(BlockLister<kGranules>::kThreads, 1)
    attune_map_blocks(const __grid_constant__ BlockMapArgs map,
                      const __grid_constant__ ScoreArgs scores,
                      const __grid_constant__ AttentionArgs args) {
  BlockLister<kGranules>::write<MapTiles<kHeadRows, kWarpgroups, kTileHeads>>(
      scores, args, map, [&](int first_row) { return first_key(args, first_row); });
}

// The rows begin at `first_row`, the keys at `first_key`.
template <int kCount>
__device__ __forceinline__ void hide_scores(const KernelParts& parts, const PrefillTile& tile,
                                            int first_row, int first_key, float (&s)[kCount]) {
  HidingStage(parts, tile, first_row, first_key).hide(s);
}

}  // namespace attune
