// SPDX-License-Identifier: Apache-2.0
// Score feature key_lengths: hides keys with kv_idx >= key_lengths[batch].
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& key_lengths_feature();

}  // namespace attune
