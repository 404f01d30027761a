// SPDX-License-Identifier: Apache-2.0
// Knobs and rules of the warp-specialised sm_90 kernels. Used by prefill_sm90 and prefill_sm90_fp8,
// and in part by cache_sm90 and mla_sm90.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/kernel_template.hpp"
#include "templates/shared/layouts/prefill_sm90_layout.h"

namespace attune {

// Returns why no sm_90 family serves an arch, or nullopt.
std::optional<std::string> not_sm90a(const Arch& arch);

// Returns why no sm_90 family serves a spec: the arch, or head dims that no tile holds. Each family
// checks dtypes itself.
std::optional<std::string> sm90_refusal(const KernelSpec& spec, const Arch& arch);

// Returns the values of pack_heads: 1, or the most heads that divide a group and the rows of a
// warpgroup. If these are not the whole group, also a number that holds the whole group with idle
// rows. With dropout the 16 rows of a warp belong to one head.
std::vector<int64_t> sm90_pack_heads(const KernelSpec& spec);

// Returns the knobs of both prefill families, in the order of config texts. `own` are the family's
// own knobs, which come before kv_splits.
struct Sm90KnobValues {
  std::vector<int64_t> block_n, kv_ring, l2_section_mb;
};
std::vector<Knob> sm90_knobs(const KernelSpec& spec, const Sm90KnobValues& values,
                             const std::vector<Knob>& own);

// Returns the registers that the accumulators of a consumer thread take.
using Sm90Accumulators = int (*)(const KernelSpec& spec, const Config& config);

// Returns the rules of both prefill families: against useless combinations of knobs, those of
// sm90_room_rules(), and one about o_staging.
std::vector<Constraint> sm90_rules(const KernelSpec& spec, const Arch& arch,
                                   Sm90Accumulators accumulators);
// Returns the rules that a config fits the registers and the shared memory.
std::vector<Constraint> sm90_room_rules(const KernelSpec& spec, const Arch& arch,
                                        Sm90Accumulators accumulators);

// Returns the config as the layout of shared memory needs it.
PrefillSm90Config sm90_layout_config(const KernelSpec& spec, const Config& config);
// Returns the bytes of dynamic shared memory of a block.
int sm90_shared_bytes(const KernelSpec& spec, const Config& config);
Resources sm90_resources(const KernelSpec& spec, const Arch& arch, const Config& config);

// True if score changes are already in the accumulators (score::adds_along_diagonals). That needs
// 16-bit operands, tiles with rows of one head, and a whole K in its own slots.
bool sm90_adds_diagonals(const KernelSpec& spec, const Config& config);

}  // namespace attune
