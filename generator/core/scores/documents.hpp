// SPDX-License-Identifier: Apache-2.0
// Score feature documents: hides keys of other documents than the row's, by the ids of rows and
// keys.
#pragma once

#include "generator/core/score_feature.hpp"

namespace attune {

const ScoreFeature& documents_feature();

}  // namespace attune
