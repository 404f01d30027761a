// SPDX-License-Identifier: Apache-2.0
// Score feature documents: hides keys whose document id differs from the row's.
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& documents_feature();

}  // namespace attune
