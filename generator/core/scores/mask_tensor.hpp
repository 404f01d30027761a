// SPDX-License-Identifier: Apache-2.0
// Score feature mask_tensor: keys where a tensor of bools [batch, num_heads_q, seqlen_q, seqlen_kv] is false are hidden.
#pragma once

#include "generator/core/score_feature.hpp"

namespace attune {

const ScoreFeature& mask_tensor_feature();

}  // namespace attune
