// SPDX-License-Identifier: Apache-2.0
// The common part of prefill_sm90 and prefill_sm90_fp8: the rules of their configs, and the launch
// of the attention kernel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/families/prefill/block_map.hpp"
#include "generator/kernel_template.hpp"
#include "templates/shared/layouts/prefill_sm90_layout.h"
#include "templates/shared/layouts/prefill_sm90_splits.h"

namespace attune {

// True if score changes are already in the accumulators (score::adds_along_diagonals). That needs
// 16-bit operands, tiles with rows of one head, and a whole K in its own slots.
bool sm90_adds_diagonals(const KernelSpec& spec, const Config& config);

PrefillSm90Config sm90_layout_config(const KernelSpec& spec, const Config& config);

// Returns why neither family serves a spec: the arch, or head dims that no tile holds. Each family
// checks dtypes itself.
std::optional<std::string> sm90_refusal(const KernelSpec& spec, const Arch& arch);

// Returns the knobs of both families, in the order of config texts. `own` are the family's own
// knobs, which come before kv_splits.
struct Sm90KnobValues {
  std::vector<int64_t> block_n, kv_ring, l2_section_mb;
};
std::vector<Knob> sm90_knobs(const KernelSpec& spec, const Sm90KnobValues& values,
                             const std::vector<Knob>& own);

// Returns the registers that the accumulators of a consumer thread take.
using Sm90Accumulators = int (*)(const KernelSpec& spec, const Config& config);

// Returns the values of pack_heads: 1, or the most heads that divide a group and the rows of a
// warpgroup. If these are not the whole group, also a number that holds the whole group with idle
// rows. With dropout the 16 rows of a warp belong to one head.
std::vector<int64_t> sm90_pack_heads(const KernelSpec& spec);

// Returns the rules that a config fits the registers and the shared memory.
std::vector<Constraint> sm90_room_rules(const KernelSpec& spec, const Arch& arch,
                                        Sm90Accumulators accumulators);

// Returns the rules against useless combinations of knobs, then those of sm90_room_rules().
std::vector<Constraint> sm90_rules(const KernelSpec& spec, const Arch& arch,
                                   Sm90Accumulators accumulators);

// Returns the bytes of dynamic shared memory of a block.
int sm90_shared_bytes(const KernelSpec& spec, const Config& config);

Resources sm90_resources(const KernelSpec& spec, const Arch& arch, const Config& config);

// Returns the config of `proven` that `clocks` predicts to be the fastest on `device`, with keys
// split if there are few tiles. This is not tuning, but it depends on the shape. Throws kInternal
// if none is legal.
using Sm90Clocks = double (*)(const KernelSpec& spec, const Config& config, const Shape& shape,
                              const DeviceFacts& device);
Config sm90_default(const KernelTemplate& family, const KernelSpec& spec, const Arch& arch,
                    const Shape& shape, const DeviceFacts& device,
                    const std::vector<Config>& proven, Sm90Clocks clocks);

// Return a launch of one step, with the workspace of its scheduler and splits. The family adds its
// tensor maps.
LaunchStructure sm90_structure(const KernelSpec& spec, const Config& config);
LaunchSizes sm90_sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                       const DeviceFacts& device);

// Returns the tiles and blocks for the map of blocks.
MapShape sm90_map_shape(const Config& config, const Shape& shape);

}  // namespace attune
