// SPDX-License-Identifier: Apache-2.0
// Estimates the run time of a prefill_sm90 launch, to rank configs before any is compiled. The
// roofline is in templates/cuda/prefill_sm90/README.md; tests/generator/cost_rank_test.cpp compares
// its order with measurements.
#pragma once

#include "generator/kernel_template.hpp"
#include "templates/shared/layouts/prefill_sm90_layout.h"

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

// Returns the number of key blocks that the tile of query rows from `first_row` on sees.
int64_t sm90_visible_blocks(const KernelSpec& spec, const Shape& shape, int64_t first_row,
                            int64_t rows, int block_n);

// Returns the megabytes of K and V that tiles work through together: about two thirds of the L2, as
// 8, 16 or 32.
//   0            without a causal mask and without a mask program
//   32           with kv_splits or pack_heads
//   at most 16   up to 1024 keys, with the dynamic scheduler and without a left window
//   4 or 8       up to 512 keys under the same conditions, if it gives nearly every multiprocessor
//                a tile, and the smaller if both do; short sequences are bound by memory
int sm90_l2_section_mb(const KernelSpec& spec, const Config& config, const Shape& shape,
                       const DeviceFacts& device);
// Returns the cost factor of an l2_section_mb that differs from sm90_l2_section_mb().
double sm90_section_factor(const KernelSpec& spec, const Config& config, const Shape& shape,
                           const DeviceFacts& device);

// Returns the clocks of the slowest multiprocessor.
double sm90_predicted_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                             const DeviceFacts& device);

// Returns the same clocks for a given time of a step: all resident blocks complete a block_m x
// block_n step in `step` clocks.
double sm90_launch_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                          const DeviceFacts& device, double step);

}  // namespace attune
