// SPDX-License-Identifier: Apache-2.0
// The launch of the warp-specialised sm_90 kernels: tiles, workspace, grid. Used by prefill_sm90
// and prefill_sm90_fp8. The cost model and cache_sm90 use the tiles.
#pragma once

#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/kernel_template.hpp"

namespace attune {

// Values of the knob scheduler, as in templates/cuda/sm90/tile_stream.cuh.
enum class Sm90Scheduler : int { kOneTile = 0, kStatic = 1, kDynamic = 2 };

// The tiles of a launch, before keys are split: `rows` of Q per head in one tile, `row_blocks`
// blocks of rows, and `groups` groups of heads that share a tile.
struct Sm90Tiles {
  int64_t rows;
  int64_t row_blocks;
  int64_t groups;

  int64_t count() const { return row_blocks * groups; }
};
Sm90Tiles sm90_tiles(const Config& config, const Shape& shape);

// True if tiles with later rows see more keys: under a causal mask, and, it is assumed, under a
// mask program.
bool sm90_longest_first(const KernelSpec& spec);

// Return a launch of one step, with the workspace of its scheduler and splits. The family adds its
// tensor maps.
LaunchStructure sm90_structure(const KernelSpec& spec, const Config& config);
LaunchSizes sm90_sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                       const DeviceFacts& device);

// Returns the tiles and blocks for the map of blocks.
MapShape sm90_map_shape(const Config& config, const Shape& shape);

}  // namespace attune
