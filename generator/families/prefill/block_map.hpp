// SPDX-License-Identifier: Apache-2.0
// The map of blocks (templates/shared/block_map.h) in the launches of families: the first step
// writes it, the main step reads it. Used by every CUDA family of prefill for specs with a mask
// program.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

// The tiles of a launch, and the keys of a block.
struct MapShape {
  int64_t row_blocks = 1;
  int64_t head_tiles = 1;  // adjacent tiles per batch entry
  int64_t block_n = 1;
};

// Both do nothing for specs without a mask program. Call them last, so that the rest of the
// workspace keeps its place.
void add_block_map(const KernelSpec& spec, LaunchStructure* launch);
void add_block_map(const KernelSpec& spec, const Shape& shape, const MapShape& map,
                   LaunchSizes* sizes);

}  // namespace attune
