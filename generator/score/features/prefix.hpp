// SPDX-License-Identifier: Apache-2.0
// Score feature prefix: a causal mask that also shows the first prefix[batch] keys. It includes the
// causal mask, so the problem's mask must be none.
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& prefix_feature();

}  // namespace attune
