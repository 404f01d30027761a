// SPDX-License-Identifier: Apache-2.0
// What the two mma.sync families, prefill_sm80 and prefill_sm75, have in common on the host: the
// rules that make a config legal, how it is launched, and a rough time. The kernels are
// templates/cuda/prefill_sm80.cu and prefill_sm75.cu.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/kernel_template.hpp"
#include "templates/shared/prefill_sm80_layout.h"

namespace attune {

// The knobs of one config as numbers; stages is 1, hold_offsets 0 and load_hint 128 where the
// family has no such knob.
struct MmaConfig {
  int block_m, block_n, warps, stages, share_kv, q_place, min_blocks, hold_offsets, persistent,
      tile_order, load_hint;

  int threads() const { return 32 * warps; }
  int row_tiles() const { return block_m / (16 * warps); }  // m16 tiles that a warp owns
};

MmaConfig mma_config(const Config& config);
PrefillSm80Layout mma_layout(const KernelSpec& spec, const MmaConfig& config);

// nullopt when the spec suits mma.sync kernels at all (dtypes are the family's own matter).
std::optional<std::string> mma_refusal(const KernelSpec& spec);

// The knobs that both families have, with values for this spec.
std::vector<Knob> mma_tile_knobs(const KernelSpec& spec);
std::vector<Knob> mma_schedule_knobs(const KernelSpec& spec);
std::vector<Constraint> mma_constraints(const KernelSpec& spec, const Arch& arch);

Resources mma_resources(const KernelSpec& spec, const Arch& arch, const MmaConfig& config);
LaunchPlan mma_launch(const KernelSpec& spec, const MmaConfig& config, const Shape& shape,
                      const DeviceFacts& device);
double mma_predicted_cost(const KernelSpec& spec, const Arch& arch, const MmaConfig& config,
                          const Shape& shape, const DeviceFacts& device);

// True where rows of Q see different numbers of columns, so that the order of tiles matters.
bool tiles_differ_in_length(const KernelSpec& spec);

}  // namespace attune
