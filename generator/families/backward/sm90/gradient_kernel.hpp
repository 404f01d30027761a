// SPDX-License-Identifier: Apache-2.0
// One of the kernels that multiply in a launch of gradients on Hopper: its tile, accumulators,
// registers and shared memory, and the rule that it fits the machine. Each family makes its kernels
// with the functions here (two_kernels.cpp, one_kernel.cpp, stored.cpp, band.cpp).
#pragma once

#include <optional>
#include <string>

#include "generator/kernel_template.hpp"
#include "templates/shared/layouts/backward_dq_warpgroup_layout.h"
#include "templates/shared/layouts/backward_sm90_layout.h"
#include "templates/shared/layouts/backward_unordered_layout.h"

namespace attune {

// Keys that stay in a block, or 64 rows for each of its warpgroups.
constexpr int kTwoWarpgroups = 2 * kWarpgroupRows;

// kBand: all gradients, along a narrow band. kStoredDk, kStoredDv: from dS, or P, that the kernel
// of dQ left in the workspace.
enum class BackwardMakes : int { kDq, kDk, kDv, kDkDv, kAll, kBand, kStoredDk, kStoredDv };

struct BackwardKernel {
  BackwardMakes makes;
  BackwardSm90Tile tile;
  int accumulators;           // per consumer thread
  int widest;                 // columns of the accumulators of its widest wgmma
  int section_heads = 0;      // for kAll: heads whose tiles are taken in turn
  bool draws_tiles = false;   // for kAll: persistent blocks with dynamic scheduling
  bool dq_warpgroup = false;  // for kAll: a separate warpgroup makes dQ
  bool ordered = true;        // for kAll: blocks of keys add to dQ in the order of keys
  int stored_bytes = 0;       // per element, through the workspace
  bool splits_heads = false;  // blocks of keys take a part of a group's heads (head_parts.hpp)

  bool of_rows() const { return makes == BackwardMakes::kDq; }
  bool of_stored() const {
    return makes == BackwardMakes::kStoredDk || makes == BackwardMakes::kStoredDv;
  }
};

// The rows of keys that stay in a block, the rows of a step, and the slots of both rings.
struct KeysTile {
  int block_n, block_m, q_slots, dout_slots;
};

// The rows of Q that stay in a block, the keys of a step, and the slots of both rings.
struct RowsTile {
  int block_m, block_n, k_slots, v_slots;
};

// Returns the kernel of dQ. It stores `stored_bytes` for each element of the scores.
BackwardKernel backward_rows_kernel(const KernelSpec& spec, const RowsTile& tile,
                                    int stored_bytes = 0);
// Returns the kernel of dK, dV or both, or the part of kAll that makes these.
BackwardKernel backward_keys_kernel(const KernelSpec& spec, const KeysTile& tile,
                                    BackwardMakes makes);

int backward_shared_bytes(const BackwardKernel& kernel);
// Returns the registers per thread at launch, and after they are moved between warpgroups.
PrefillSm90Registers backward_registers(const BackwardKernel& kernel);

// Returns why the kernel does not fit registers or shared memory; nullopt if it does.
std::optional<std::string> broken_kernel(const BackwardKernel& kernel, const KernelSpec& spec,
                                         const Arch& arch);

// Returns the number of work tiles, one per block, if blocks of keys take whole groups of heads.
int64_t backward_tiles(const BackwardKernel& kernel, const Shape& shape);

}  // namespace attune
