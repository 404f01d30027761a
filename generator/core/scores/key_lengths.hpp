// SPDX-License-Identifier: Apache-2.0
// Score feature key_lengths: hides keys from key_lengths[batch] on.
#pragma once

#include "generator/core/score_feature.hpp"

namespace attune {

const ScoreFeature& key_lengths_feature();

}  // namespace attune
