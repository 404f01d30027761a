// SPDX-License-Identifier: Apache-2.0
// Extensions of prefill_sm90 for heads of more than 256 columns: knobs v_slices (v_slices.hpp) and
// k_parts, fewer keys per step, one slot of K and V, and the configs of a default. The numbers
// behind them are in templates/cuda/prefill_sm90/LOG.md.
#pragma once

#include <vector>

#include "generator/core/problem/config.hpp"
#include "generator/core/problem/kernel_spec.hpp"
#include "generator/search_space.hpp"

namespace attune {

// Replaces the usual knobs by the knobs of wide heads.
void sm90_widen(const KernelSpec& spec, std::vector<Knob>* knobs);
// Returns the rule that ties k_parts to other knobs.
Constraint sm90_parts_rule();
// Returns configs in the order of these knobs; most are not legal for most specs.
std::vector<Config> sm90_wide_configs(const KernelSpec& spec, const std::vector<Knob>& knobs);
// Returns the number of columns of Q and K in one group of products: a part's, or all if k_parts is
// 1.
int sm90_part_columns(const KernelSpec& spec, const Config& config);

}  // namespace attune
