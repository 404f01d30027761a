// SPDX-License-Identifier: Apache-2.0
// The kernels of backward_sm80 as functions of spec and config, and their estimated run time, which
// ranks configs before any is compiled.
#pragma once

#include <vector>

#include "generator/families/backward/sm90/gradient_kernel.hpp"
#include "generator/kernel_template.hpp"
#include "templates/shared/layouts/backward_sm80_layout.h"

namespace attune {

// One of the kernels that multiply. `config` needs only the knobs of that kernel.
struct MmaGradientKernel {
  BackwardMakes makes;
  BackwardSm80Tile tile;
  int blocks_per_sm;

  bool of_rows() const { return makes == BackwardMakes::kDq; }
  bool makes_first() const { return makes != BackwardMakes::kDv; }  // dQ or dK, from dP
  bool makes_second() const { return makes == BackwardMakes::kDv || makes == BackwardMakes::kDkDv; }
  int shared_bytes() const { return backward_sm80_layout(tile).bytes; }
  int threads() const { return 32 * tile.warps; }
  // Returns the number of registers per thread for gradients, scores and dP.
  int accumulators() const;
};

MmaGradientKernel mma_rows_kernel(const KernelSpec& spec, const Config& config);
// Returns one or two kernels, in the order of a launch; none if neither dK nor dV is needed.
std::vector<MmaGradientKernel> mma_keys_kernels(const KernelSpec& spec, const Config& config);
// Returns the kernels for the requested gradients, in the order of a launch.
std::vector<MmaGradientKernel> mma_gradient_kernels(const KernelSpec& spec, const Config& config);

// Returns the number of work tiles of a kernel, one per block.
int64_t mma_gradient_tiles(const MmaGradientKernel& kernel, const Shape& shape);

// Returns the clocks until the last multiprocessor ends.
double mma_gradient_clocks(const MmaGradientKernel& kernel, const KernelSpec& spec,
                           const Shape& shape, const DeviceFacts& device);

}  // namespace attune
