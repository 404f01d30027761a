// SPDX-License-Identifier: Apache-2.0
// What prefill_sm90 has of its own for heads of more than 256 columns: knobs v_slices (v_slices.hpp)
// and k_parts, fewer keys a step, one slot of K and V, and the configs that a default may choose.
// The numbers behind them are in templates/cuda/prefill_sm90_log.md.
#pragma once

#include <vector>

#include "generator/core/config.hpp"
#include "generator/core/kernel_spec.hpp"
#include "generator/search_space.hpp"

namespace attune {

// The knobs of other heads with those of wide ones.
void sm90_widen(const KernelSpec& spec, std::vector<Knob>* knobs);
// What ties k_parts to other knobs.
Constraint sm90_parts_rule();
// In the order of these knobs; most are not legal for most specs.
std::vector<Config> sm90_wide_configs(const KernelSpec& spec, const std::vector<Knob>& knobs);
// Columns of Q and K that one group of products multiplies: those of a part, or all.
int sm90_part_columns(const KernelSpec& spec, const Config& config);

}  // namespace attune
