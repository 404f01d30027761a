// SPDX-License-Identifier: Apache-2.0
// Rough run time of a prefill_sm90 launch, for ranking configs before any is compiled. The roofline
// it follows is in templates/cuda/prefill_sm90.md; tests/generator/cost_rank_test.cpp holds its
// order against what was measured.
#pragma once

#include "generator/kernel_template.hpp"
#include "templates/shared/prefill_sm90_layout.h"

namespace attune {

// Values of the knob scheduler, as in templates/cuda/attention/tile_stream.cuh.
enum class Sm90Scheduler : int { kOneTile = 0, kStatic = 1, kDynamic = 2 };

// The tiles of a launch, before their keys are split: `rows` of Q of each head in one tile,
// `row_blocks` blocks of so many rows, `groups` groups of heads that share a tile.
struct Sm90Tiles {
  int64_t rows;
  int64_t row_blocks;
  int64_t groups;

  int64_t count() const { return row_blocks * groups; }
};
Sm90Tiles sm90_tiles(const Config& config, const Shape& shape);

// Whether tiles see more keys the later their rows are: under a causal mask, and as is supposed of a mask program.
bool sm90_longest_first(const KernelSpec& spec);

// Key blocks that the tile of query rows starting at `first_row` works through; 0 when it sees
// nothing.
int64_t sm90_visible_blocks(const KernelSpec& spec, const Shape& shape, int64_t first_row,
                            int64_t rows, int block_n);

// Megabytes of K and V that tiles work through together under a mask: what the device's L2 holds
// beside everything else. 0 without a mask. Short sequences are bound by memory: up to 512 keys it
// is the least that gives about every multiprocessor a tile. sm90_section_factor says how much
// other values of the knob cost.
int sm90_l2_section_mb(const KernelSpec& spec, const Config& config, const Shape& shape,
                       const DeviceFacts& device);
double sm90_section_factor(const KernelSpec& spec, const Config& config, const Shape& shape,
                           const DeviceFacts& device);

// Clocks of the slowest multiprocessor.
double sm90_predicted_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                             const DeviceFacts& device);

// The same where a step of block_m x block_n of every resident block takes `step` clocks.
double sm90_launch_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                          const DeviceFacts& device, double step);

}  // namespace attune
