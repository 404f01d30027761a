// SPDX-License-Identifier: Apache-2.0
// Score feature chunk: keys of another chunk of so many positions than the row's are hidden.
#pragma once

#include "generator/core/score_feature.hpp"

namespace attune {

const ScoreFeature& chunk_feature();

}  // namespace attune
