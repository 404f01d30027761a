// SPDX-License-Identifier: Apache-2.0
// What prefill_sm90 and prefill_sm90_fp8 have in common: the rules of their configs, and the launch
// of the kernel that attends.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/families/block_map.hpp"
#include "generator/kernel_template.hpp"
#include "templates/shared/prefill_sm90_layout.h"
#include "templates/shared/prefill_sm90_splits.h"

namespace attune {

// Whether what scores get stands in the accumulators before (score::adds_along_diagonals): of 16-bit operands, where a tile's rows
// are of one head and K comes whole, into slots of its own.
bool sm90_adds_diagonals(const KernelSpec& spec, const Config& config);

PrefillSm90Config sm90_layout_config(const KernelSpec& spec, const Config& config);

// What both refuse: other archs, and head dims that no tile holds. Each family looks at dtypes
// itself.
std::optional<std::string> sm90_refusal(const KernelSpec& spec, const Arch& arch);

// Knobs of both, in the order of config texts. `own`: the family's own knobs, which stand before
// kv_splits.
struct Sm90KnobValues {
  std::vector<int64_t> block_n, kv_ring, l2_section_mb;
};
std::vector<Knob> sm90_knobs(const KernelSpec& spec, const Sm90KnobValues& values,
                             const std::vector<Knob>& own);

// Registers that the accumulators of a consumer thread take.
using Sm90Accumulators = int (*)(const KernelSpec& spec, const Config& config);

// Values of pack_heads: none, or the most heads that divide a group and the rows of a warpgroup; where those are not the whole group,
// also places for all of it, some of them idle. With dropout the 16 rows of a warp are of one head.
std::vector<int64_t> sm90_pack_heads(const KernelSpec& spec);

// Whether registers and shared memory hold a config.
std::vector<Constraint> sm90_room_rules(const KernelSpec& spec, const Arch& arch,
                                        Sm90Accumulators accumulators);

// Rules about what makes sense, then about what the machine can hold.
std::vector<Constraint> sm90_rules(const KernelSpec& spec, const Arch& arch,
                                   Sm90Accumulators accumulators);

// Dynamic shared memory of a block.
int sm90_shared_bytes(const KernelSpec& spec, const Config& config);

Resources sm90_resources(const KernelSpec& spec, const Arch& arch, const Config& config);

// The config of `proven` that `clocks` predicts to be the fastest on `device`, with the keys split
// where there are few tiles. This is not tuning, but it depends on the shape. Throws kInternal when
// none is legal.
using Sm90Clocks = double (*)(const KernelSpec& spec, const Config& config, const Shape& shape,
                              const DeviceFacts& device);
Config sm90_default(const KernelTemplate& family, const KernelSpec& spec, const Arch& arch,
                    const Shape& shape, const DeviceFacts& device,
                    const std::vector<Config>& proven, Sm90Clocks clocks);

// A launch of one step, with the workspace of its scheduler and splits. The family adds its tensor
// maps.
LaunchStructure sm90_structure(const KernelSpec& spec, const Config& config);
LaunchSizes sm90_sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                       const DeviceFacts& device);

// Tiles and blocks as the map of blocks has them.
MapShape sm90_map_shape(const Config& config, const Shape& shape);

}  // namespace attune
