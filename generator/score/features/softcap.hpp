// SPDX-License-Identifier: Apache-2.0
// Score feature softcap: c * tanh(score / c).
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& softcap_feature();

}  // namespace attune
