// SPDX-License-Identifier: Apache-2.0
// The common part of the mma.sync families prefill_sm75, prefill_sm80, prefill_sm80_tf32 and
// prefill_sm89: knobs, rules and launch (prefill_mma.cpp), and the cost model (cost.cpp).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/kernel_template.hpp"
#include "templates/shared/layouts/prefill_sm80_layout.h"

namespace attune {

// The knobs of one config as numbers. kv_slots is 1, hold_offsets 0 and load_hint 128 if
// the family has no such knob.
struct MmaConfig {
  int block_m, block_n, warps, kv_slots, share_kv, q_place, blocks_per_sm, hold_offsets, tile_order,
      load_hint;

  int threads() const { return 32 * warps; }
  int row_tiles() const { return block_m / (16 * warps); }  // m16 tiles per warp
};

MmaConfig mma_config(const Config& config);
PrefillSm80Layout mma_layout(const KernelSpec& spec, const MmaConfig& config);
int mma_row_bytes(const KernelSpec& spec, int head_dim);  // of a tile in shared memory

// Returns why no mma.sync kernel serves the spec; nullopt if one may. Each family checks dtypes
// itself.
std::optional<std::string> mma_refusal(const KernelSpec& spec);

// Return the knobs that all families have, with values for this spec.
std::vector<Knob> mma_tile_knobs(const KernelSpec& spec);
std::vector<Knob> mma_schedule_knobs(const KernelSpec& spec);
// Returns all knobs of a family whose loads are cp.async.
std::vector<Knob> mma_async_knobs(const KernelSpec& spec);
std::vector<Constraint> mma_constraints(const KernelSpec& spec, const Arch& arch);

double mma_predicted_cost(const KernelSpec& spec, const Arch& arch, const MmaConfig& config,
                          const Shape& shape, const DeviceFacts& device);

// True if rows of Q see different numbers of columns, so that the order of tiles matters.
bool tiles_differ_in_length(const KernelSpec& spec);

// The common base of the families. A family adds the problems it serves, its space and its
// defaults.
class PrefillMma : public KernelTemplate {
 public:
  KernelSpec compiled_spec(const KernelSpec& spec, const Config& config) const override;
  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch& arch,
                                        const Config& config) const override;
  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override;
  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override;
  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override;
  double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override;

 protected:
  // Returns a config with these values, the one legal blocks_per_sm for them, and the first value
  // of every other knob; nullopt if it is not legal.
  static std::optional<Config> with_most_blocks(
      const SearchSpace& legal, const std::vector<std::pair<std::string, int64_t>>& chosen);
  // Returns the default for heads of more than 256 columns.
  std::optional<Config> wide_default(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                                     const DeviceFacts& device) const;
};

}  // namespace attune
