// SPDX-License-Identifier: Apache-2.0
// The kernels of backward_sm90 as functions of spec and config, and their estimated run time, which
// ranks configs before any is compiled. The roofline is in templates/cuda/backward_sm90/README.md.
#pragma once

#include <optional>
#include <vector>

#include "generator/kernel_template.hpp"
#include "templates/shared/layouts/backward_dq_warpgroup_layout.h"
#include "templates/shared/layouts/backward_sm90_layout.h"
#include "templates/shared/layouts/backward_unordered_layout.h"

namespace attune {

// kBand: all gradients, along a narrow band. kStoredDk, kStoredDv: from dS, or P, that the kernel
// of dQ left in the workspace.
enum class BackwardMakes : int { kDq, kDk, kDv, kDkDv, kAll, kBand, kStoredDk, kStoredDv };

// One of the kernels that multiply. `config` needs only the knobs of that kernel.
struct BackwardKernel {
  BackwardMakes makes;
  BackwardSm90Tile tile;
  int accumulators;           // per consumer thread
  int widest;                 // columns of the accumulators of its widest wgmma
  int section_heads = 0;      // for kAll: heads whose tiles are taken in turn
  bool draws_tiles = false;   // for kAll
  bool dq_warpgroup = false;  // for kAll: a separate warpgroup makes dQ
  bool ordered = true;        // for kAll: blocks of keys add to dQ in the order of keys
  int stored_bytes = 0;       // per element, through the workspace

  bool of_rows() const { return makes == BackwardMakes::kDq; }
  bool of_stored() const {
    return makes == BackwardMakes::kStoredDk || makes == BackwardMakes::kStoredDv;
  }
};

// True if the kernel of dK and dV also makes dQ, by tiles of keys.
bool fuses_dq(const Config& config);
// True if one kernel makes all gradients along a narrow band (knob band).
bool walks_band(const Config& config);
// True if one kernel makes all gradients, either way.
bool makes_all_at_once(const Config& config);
// True if dS goes through the workspace and dK is made from it; likewise P and dV.
bool stores_ds(const Config& config);
bool stores_p(const KernelSpec& spec, const Config& config);
// True if the fused kernel makes dP and dS for half of a step's rows at a time.
bool makes_halves(const KernelSpec& spec, const Config& config);
// True if the fused kernel makes dQ^T, because a step is not a multiple of 64 rows.
bool transposes_dq(const Config& config);
// True if a separate warpgroup of the fused kernel makes dQ.
bool has_dq_warpgroup(const KernelSpec& spec, const Config& config);

BackwardKernel backward_rows_kernel(const KernelSpec& spec, const Config& config);
// Returns one or two kernels, in the order of a launch; none if neither dK nor dV is needed.
std::vector<BackwardKernel> backward_keys_kernels(const KernelSpec& spec, const Config& config);
// Returns the kernels for the requested gradients, in the order of a launch.
std::vector<BackwardKernel> backward_kernels(const KernelSpec& spec, const Config& config);

// Return, for configs that store dS, the heads of K per round, and the size of the stored tensor.
LaunchSizes::Rounds backward_rounds(const KernelSpec& spec, const Config& config,
                                    const Shape& shape);
TensorExtents backward_stored_extents(const KernelSpec& spec, const Config& config,
                                      const Shape& shape);
// Returns a sentence if one head of K stores more than a round may, or if three tiles of keys do
// not hold a band.
std::optional<std::string> backward_unfit(const KernelSpec& spec, const Config& config,
                                          const Shape& shape);

// Returns the number of places along the band (backward_band_layout.h), over all heads and batch
// entries.
int64_t backward_places(const KernelSpec& spec, const Shape& shape);

// Returns the number of work tiles of a kernel, one per block.
int64_t backward_tiles(const BackwardKernel& kernel, const Shape& shape);

// Returns the clocks until the last multiprocessor ends.
double backward_clocks(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                       const DeviceFacts& device);
// Returns the clocks of all kernels, and of delta.
double backward_cost(const KernelSpec& spec, const Config& config, const Shape& shape,
                     const DeviceFacts& device);

}  // namespace attune
