// SPDX-License-Identifier: Apache-2.0
// Score features score_mod and mask_mod: programs that callers give (user_program.hpp).
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

const ScoreFeature& score_mod_feature();
const ScoreFeature& mask_mod_feature();

}  // namespace attune
