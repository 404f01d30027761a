// SPDX-License-Identifier: Apache-2.0
// The kernel that makes the block map of an sm_90 kernel: the rows of each warpgroup are one group.
#pragma once

#include "cuda/parts/block_map.cuh"  // unless kGranules, else granule_lists.cuh
#include "cuda/parts/none/features.cuh"
#include "cuda/sm90/tile_stream.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(BlockLister<kGranules>::kThreads, 1)
    attune_map_blocks(const __grid_constant__ BlockMapArgs map,
                      const __grid_constant__ ScoreArgs scores,
                      const __grid_constant__ AttentionArgs args) {
  BlockLister<kGranules>::write<MapTiles<kHeadRows, kWarpgroups, kTileHeads>>(
      scores, args, map, [&](int first_row) { return first_key(args, first_row); });
}

}  // namespace attune
