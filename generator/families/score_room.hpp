// SPDX-License-Identifier: Apache-2.0
// Defaults of kernels with a score stage: it wants registers, which narrower steps leave. Used by the families of prefill.
#pragma once

#include <cstdint>

#include "generator/core/score_feature.hpp"
#include "generator/search_space.hpp"

namespace attune {

// `config` of a spec with a score stage, with at most `block_n` keys a step: as many as are legal; min_blocks, q_place and
// hold_offsets follow where the family has them. Where its tiles have more than `block_m` rows, which leave each thread fewer
// registers, they get so many and the fewest keys. A config that has no such neighbour stays as it is.
Config with_room_for_scores(const SearchSpace& legal, const Config& config, int64_t block_n,
                            int64_t block_m = INT64_MAX);

// Whether the mask program reads a tensor for each element: what neither a row nor a column alone decides.
bool reads_elements_to_hide(const SpecFields& spec);

// The same of the score stage: a bias, not slopes.
bool reads_elements_to_score(const SpecFields& spec);

// Whether stage and mask program together read more than one tensor for each element.
bool reads_several_elements(const SpecFields& spec);

}  // namespace attune
