// SPDX-License-Identifier: Apache-2.0
// Score feature chunk: positions form chunks of equal length; keys outside the row's chunk are
// hidden.
#pragma once

#include "generator/core/score_feature.hpp"

namespace attune {

const ScoreFeature& chunk_feature();

}  // namespace attune
