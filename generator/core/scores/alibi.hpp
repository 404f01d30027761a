// SPDX-License-Identifier: Apache-2.0
// Score feature alibi: score - slope * |distance from the diagonal|, with a slope for each head, or for each head of each batch
// entry.
#pragma once

#include "generator/core/score_feature.hpp"

namespace attune {

const ScoreFeature& alibi_feature();
// The slopes of n heads as ALiBi's authors take them: 2^(-8 i / n) for a power of two, else those of the power of two below and
// every other one of the next.
std::vector<float> alibi_slopes(int num_heads);

}  // namespace attune
