// SPDX-License-Identifier: Apache-2.0
// A map of blocks that the call gives (templates/shared/block_map.h). Where it hides it is a mask: keys of granules that are 0 are not
// seen. Where it skips it changes no result: kernels ask it instead of the ranges of the problem's masks.
#pragma once

#include "generator/core/score_feature.hpp"

namespace attune {

const ScoreFeature& block_map_feature();
// The map itself: captured by the program where it hides, else behind all else.
CaptureSpec block_map_capture_of(const Problem& problem);

}  // namespace attune
