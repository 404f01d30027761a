// SPDX-License-Identifier: Apache-2.0
// Score feature prefix: a causal row sees the first prefix[batch] keys beside those up to its diagonal. The mask is none: this one stands for it.
#pragma once

#include "generator/core/score_feature.hpp"

namespace attune {

const ScoreFeature& prefix_feature();

}  // namespace attune
