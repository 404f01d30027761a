// SPDX-License-Identifier: Apache-2.0
// Estimates the run time of a prefill_sm90 launch, to rank configs before any is compiled, and
// chooses the fastest of some candidates. The roofline is in templates/cuda/prefill_sm90/LOG.md;
// tests/generator/cost_rank_test.cpp compares its order with measurements.
#pragma once

#include "generator/families/prefill/sm90/launch.hpp"
#include "generator/kernel_template.hpp"
#include "templates/shared/layouts/prefill_sm90_layout.h"

namespace attune {

// Returns the number of key blocks that the tile of query rows from `first_row` on sees.
int64_t sm90_visible_blocks(const KernelSpec& spec, const Shape& shape, int64_t first_row,
                            int64_t rows, int block_n);

// Returns the cost factor of an l2_section_mb that is not the usual one.
double sm90_section_factor(const KernelSpec& spec, const Config& config, const Shape& shape,
                           const DeviceFacts& device);

// Returns the clocks of the slowest multiprocessor.
double sm90_predicted_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                             const DeviceFacts& device);

// Returns the same clocks for a given time of a step: all resident blocks complete a block_m x
// block_n step in `step` clocks.
double sm90_launch_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                          const DeviceFacts& device, double step);

// A cost model: sm90_predicted_clocks(), or that of another family.
using Sm90Clocks = double (*)(const KernelSpec& spec, const Config& config, const Shape& shape,
                              const DeviceFacts& device);

// Returns the config of `candidates` with the fewest `clocks` on `device`, with keys split if there
// are few tiles, and with the usual l2_section_mb. Ignores configs that are not `legal`. Throws
// kInternal with the name of the family if none is legal.
Config sm90_fastest(std::string_view family, const SearchSpace& legal,
                    const std::vector<Config>& candidates, const KernelSpec& spec,
                    const Shape& shape, const DeviceFacts& device, Sm90Clocks clocks);

}  // namespace attune
