// SPDX-License-Identifier: Apache-2.0
// Score feature mask_tensor: hides keys for which a bool tensor [batch, num_heads_q, seqlen_q,
// seqlen_kv] is false.
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& mask_tensor_feature();

}  // namespace attune
