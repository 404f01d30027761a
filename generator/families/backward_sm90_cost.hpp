// SPDX-License-Identifier: Apache-2.0
// The kernels of backward_sm90 as functions of spec and config, and their rough run time, for ranking configs before any is
// compiled. The roofline is in templates/cuda/backward_sm90.md.
#pragma once

#include <vector>

#include "generator/kernel_template.hpp"
#include "templates/shared/backward_apart_layout.h"
#include "templates/shared/backward_free_layout.h"
#include "templates/shared/backward_sm90_layout.h"

namespace attune {

enum class BackwardMakes : int { kDq, kDk, kDv, kDkDv, kAll };

// One of the kernels that multiply. `config` needs the knobs of that kernel alone.
struct BackwardKernel {
  BackwardMakes makes;
  BackwardSm90Tile tile;
  int accumulators;          // registers of a consumer thread
  int widest;                // columns of the accumulators of its widest wgmma
  int section_heads = 0;     // of kAll: whose tiles are taken in turn
  bool draws_tiles = false;  // of kAll
  bool dq_apart = false;     // of kAll: a warpgroup of its own makes dQ
  bool ordered = true;       // of kAll: blocks of keys add to dQ in the order of keys

  bool of_rows() const { return makes == BackwardMakes::kDq; }
};

// Whether one kernel makes all.
bool fuses_dq(const Config& config);
// And dP and dS of half of a step's rows at a time.
bool makes_halves(const KernelSpec& spec, const Config& config);
// And dQ^T, of steps that are no multiple of 64 rows.
bool transposes_dq(const Config& config);
// And dQ by a warpgroup of its own.
bool makes_dq_apart(const KernelSpec& spec, const Config& config);

BackwardKernel backward_rows_kernel(const KernelSpec& spec, const Config& config);
// One or two, in the order of a launch; none where neither dK nor dV is asked.
std::vector<BackwardKernel> backward_keys_kernels(const KernelSpec& spec, const Config& config);
// Those that the asked gradients need, in the order of a launch.
std::vector<BackwardKernel> backward_kernels(const KernelSpec& spec, const Config& config);

// Work tiles of a kernel, one a block.
int64_t backward_tiles(const BackwardKernel& kernel, const Shape& shape);

// Clocks until the last multiprocessor ends.
double backward_clocks(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                       const DeviceFacts& device);
// Of delta, by a step ahead or by the kernel of dq.
double backward_sums_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                            const DeviceFacts& device);

}  // namespace attune
