// SPDX-License-Identifier: Apache-2.0
// Estimated run time of gradients on Hopper, in clocks. It ranks configs, and the four families,
// before any is compiled. The logs under templates/cuda/backward_sm90/ have measured times.
#pragma once

#include <vector>

#include "generator/families/backward/sm90/gradient_kernel.hpp"

namespace attune {

// Returns the clocks until the last multiprocessor ends.
double backward_clocks(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                       const DeviceFacts& device);

// Returns when the last multiprocessor ends, if work tiles are taken longest first. `sorted`:
// clocks or steps of evenly drawn tiles, longest first. `slack`: how far the last tiles end apart,
// as a share of the difference of mean and shortest tile.
double last_end(const std::vector<double>& sorted, double mean, int64_t tiles, int sm_count,
                double slack);

// How a family makes L2 and delta.
enum class Sums {
  kStep,    // by a step of their own
  kFolded,  // by the kernel of dQ
  kRounds,  // by a step of their own; another step rounds dQ from fp32
};
double sums_clocks(const KernelSpec& spec, Sums sums, const Shape& shape,
                   const DeviceFacts& device);

// Returns the clocks of a walk along a band with so many places, L2 and delta included.
double band_clocks(int64_t places, const DeviceFacts& device);

}  // namespace attune
