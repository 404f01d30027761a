// SPDX-License-Identifier: Apache-2.0
// Hides scores of a block that the warpgroup's rows see partly: by a mask program, or by a block
// map as the only mask.
#pragma once

#include "cuda/sm90/mask_stage.cuh"  // unless kHidesByMap, else granule_stage.cuh
#include "cuda/sm90/sm90_block_map.cuh"

namespace attune {

// The rows begin at `first_row`, the keys at `first_key`.
template <int kCount>
__device__ __forceinline__ void hide_scores(const KernelParts& parts, const PrefillTile& tile,
                                            int first_row, int first_key, float (&s)[kCount]) {
  HidingStage(parts, tile, first_row, first_key).hide(s);
}

}  // namespace attune
