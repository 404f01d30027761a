// SPDX-License-Identifier: Apache-2.0
// Score feature bias: adds a tensor [batch, num_heads_q, seqlen_q, seqlen_kv]; values at or below
// -1e30 hide the key.
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& bias_feature();

}  // namespace attune
