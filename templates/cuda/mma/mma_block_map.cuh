// SPDX-License-Identifier: Apache-2.0
// The kernel that makes the block map of an mma.sync kernel: the rows of a tile are one group.
#pragma once

#include "cuda/parts/block_map.cuh"  // unless kGranules, else granule_lists.cuh
#include "cuda/parts/none/features.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(BlockLister<kGranules>::kThreads, 1)
    attune_map_blocks(const __grid_constant__ BlockMapArgs map,
                      const __grid_constant__ ScoreArgs scores,
                      const __grid_constant__ AttentionArgs args) {
  BlockLister<kGranules>::write<MapTiles<kBlockM, 1, 1>>(scores, args, map, [](int) { return 0; });
}

}  // namespace attune
