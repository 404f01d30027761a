// SPDX-License-Identifier: Apache-2.0
// Defaults of kernels with a score stage: it wants registers, which narrower steps leave. Used by the families of prefill.
#pragma once

#include "generator/core/kernel_spec.hpp"
#include "generator/search_space.hpp"

namespace attune {

// `config` with at most `block_n` keys a step where `spec` has score features, as many as are legal; min_blocks, q_place and
// hold_offsets follow where the family has them. Another spec's config stays as it is, and so does one that has no narrower neighbour.
Config with_room_for_scores(const SearchSpace& legal, const KernelSpec& spec, const Config& config,
                            int64_t block_n);

}  // namespace attune
