// SPDX-License-Identifier: Apache-2.0
// Score feature documents: keys of another document than the row's are hidden, by the ids of rows and of keys.
#pragma once

#include "generator/core/score_feature.hpp"

namespace attune {

const ScoreFeature& documents_feature();

}  // namespace attune
