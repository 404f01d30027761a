// SPDX-License-Identifier: Apache-2.0
// Score feature relative_bias: adds a table [num_heads_q, seqlen_q + seqlen_kv - 1], indexed by kv
// - q. The first entry is for the last row and the first key.
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& relative_bias_feature();

}  // namespace attune
