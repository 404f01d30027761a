// SPDX-License-Identifier: Apache-2.0
// Ranges of captures as one thread reads them by itself: on a CPU, and on a GPU where each lane has ranges of its own. Stands behind
// a target's score functions.
#pragma once

#include "shared/score_ranges.h"

namespace attune {

template <CaptureType kType, class... Index>
ATTUNE_SCORE_FUNCTION auto load_range(const ScoreCapture& capture, Index... indices) {
  using Element = decltype(load_element<kType>(nullptr, 0));
  const auto box = capture_box(capture, indices...);
  if (box.size > kMostRangeLoads) return unseen(Element{});
  Gathered<Element> of = nothing_of(Element{});
  for (int i = 0; i < box.size; ++i) {
    const Element x = load_element<kType>(capture.data, box_offset(box, capture, i));
    take(of, x, x, x == x);
  }
  return range_of(of);
}

}  // namespace attune
