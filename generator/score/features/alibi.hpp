// SPDX-License-Identifier: Apache-2.0
// Score feature alibi: score - slope * |distance from the diagonal|, with a slope per head, or per
// batch entry and head.
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& alibi_feature();

}  // namespace attune
