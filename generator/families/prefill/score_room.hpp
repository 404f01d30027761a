// SPDX-License-Identifier: Apache-2.0
// Defaults of kernels with a score stage: it needs registers, which narrower steps leave. Used by
// the families of prefill.
#pragma once

#include <cstdint>

#include "generator/score/features/score_feature.hpp"
#include "generator/search_space.hpp"

namespace attune {

// Returns `config`, for a spec with a score stage, with the most legal keys per step up to
// `block_n`. blocks_per_sm, q_place and hold_offsets follow if the family has them. Tiles of more
// than `block_m` rows leave each thread fewer registers: they get `block_m` rows and the fewest
// keys. A config without such a neighbour stays as it is.
Config with_room_for_scores(const SearchSpace& legal, const Config& config, int64_t block_n,
                            int64_t block_m = INT64_MAX);

// True if the mask program reads a tensor per element, at indices of both row and column.
bool reads_elements_to_hide(const SpecFields& spec);

// True if the score stage reads a tensor per element, such as a bias but not slopes.
bool reads_elements_to_score(const SpecFields& spec);

// True if stage and mask program together read more than one tensor per element.
bool reads_several_elements(const SpecFields& spec);

}  // namespace attune
