// SPDX-License-Identifier: Apache-2.0
// A map of blocks that the call gives (templates/shared/block_map.h). With block_map=hides the map
// is a mask: keys in blocks that are 0 are hidden. With block_map=skips it changes no result:
// kernels read it instead of computing ranges of the problem's masks.
#pragma once

#include "generator/score/features/score_feature.hpp"

namespace attune {

// Returns the map's capture: its program's if the map hides, else an additional one after all
// others.
CaptureSpec block_map_capture_of(const Problem& problem);

}  // namespace attune
