// SPDX-License-Identifier: Apache-2.0
// Score feature bias: a tensor [batch, num_heads_q, seqlen_q, seqlen_kv] is added; at or below -1e30 it hides.
#pragma once

#include "generator/core/score_feature.hpp"

namespace attune {

const ScoreFeature& bias_feature();

}  // namespace attune
