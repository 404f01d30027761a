// SPDX-License-Identifier: Apache-2.0
// Score feature chunk: divides positions into chunks of equal length, and hides keys outside the
// row's chunk.
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& chunk_feature();

}  // namespace attune
