// SPDX-License-Identifier: Apache-2.0
// The kernels of backward_sm80 as functions of spec and config, and their rough run time, for ranking configs before any is compiled.
#pragma once

#include <vector>

#include "generator/families/backward_sm90_cost.hpp"
#include "generator/kernel_template.hpp"
#include "templates/shared/backward_sm80_layout.h"

namespace attune {

// One of the kernels that multiply. `config` needs the knobs of that kernel alone.
struct MmaGradientKernel {
  BackwardMakes makes;
  BackwardSm80Tile tile;
  int min_blocks;

  bool of_rows() const { return makes == BackwardMakes::kDq; }
  bool makes_first() const { return makes != BackwardMakes::kDv; }  // dQ or dK, from dP
  bool makes_second() const { return makes == BackwardMakes::kDv || makes == BackwardMakes::kDkDv; }
  int shared_bytes() const { return backward_sm80_layout(tile).bytes; }
  int threads() const { return 32 * tile.warps; }
  // Registers of gradients, scores and dP.
  int accumulators() const;
};

MmaGradientKernel mma_rows_kernel(const KernelSpec& spec, const Config& config);
// One or two, in the order of a launch; none where neither dK nor dV is asked.
std::vector<MmaGradientKernel> mma_keys_kernels(const KernelSpec& spec, const Config& config);
// Those that the asked gradients need, in the order of a launch.
std::vector<MmaGradientKernel> mma_gradient_kernels(const KernelSpec& spec, const Config& config);

// Work tiles of a kernel, one a block.
int64_t mma_gradient_tiles(const MmaGradientKernel& kernel, const Shape& shape);

// Clocks until the last multiprocessor ends.
double mma_gradient_clocks(const MmaGradientKernel& kernel, const KernelSpec& spec,
                           const Shape& shape, const DeviceFacts& device);

}  // namespace attune
