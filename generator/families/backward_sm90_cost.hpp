// SPDX-License-Identifier: Apache-2.0
// The kernels of backward_sm90 as functions of spec and config, and their rough run time, for ranking configs before any is
// compiled. The roofline is in templates/cuda/backward_sm90.md.
#pragma once

#include <optional>
#include <vector>

#include "generator/kernel_template.hpp"
#include "templates/shared/backward_apart_layout.h"
#include "templates/shared/backward_free_layout.h"
#include "templates/shared/backward_sm90_layout.h"

namespace attune {

// kBand: all, along a narrow band. kStored...: of dS, or P, that the kernel of dQ left in the workspace.
enum class BackwardMakes : int { kDq, kDk, kDv, kDkDv, kAll, kBand, kStoredDk, kStoredDv };

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
  int stored_bytes = 0;      // of each element, that go through the workspace

  bool of_rows() const { return makes == BackwardMakes::kDq; }
  bool of_stored() const {
    return makes == BackwardMakes::kStoredDk || makes == BackwardMakes::kStoredDv;
  }
};

// Whether the kernel of dK and dV makes dQ, too, by tiles of keys.
bool fuses_dq(const Config& config);
// Whether one kernel walks along a narrow band.
bool walks_band(const Config& config);
// Whether one kernel makes all, either way.
bool makes_all_at_once(const Config& config);
// Whether dS goes through the workspace, and dK is made of it; whether P does, and dV is.
bool stores_ds(const Config& config);
bool stores_p(const KernelSpec& spec, const Config& config);
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

// Of configs that store dS: how many heads of K a round has, and what it leaves in the workspace.
LaunchSizes::Rounds backward_rounds(const KernelSpec& spec, const Config& config,
                                    const Shape& shape);
TensorExtents backward_stored_extents(const KernelSpec& spec, const Config& config,
                                      const Shape& shape);
// Where one head of K leaves more than a round may, or three tiles of keys do not hold a band, a sentence that says so.
std::optional<std::string> backward_unfit(const KernelSpec& spec, const Config& config,
                                          const Shape& shape);

// Places of a walk along a band, of all heads.
int64_t backward_places(const KernelSpec& spec, const Shape& shape);

// Work tiles of a kernel, one a block.
int64_t backward_tiles(const BackwardKernel& kernel, const Shape& shape);

// Clocks until the last multiprocessor ends.
double backward_clocks(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                       const DeviceFacts& device);
// Of all kernels, and of delta.
double backward_cost(const KernelSpec& spec, const Config& config, const Shape& shape,
                     const DeviceFacts& device);

}  // namespace attune
