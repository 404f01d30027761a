// SPDX-License-Identifier: Apache-2.0
// Ranges of captures on a CPU.
#pragma once

#include "cpu/score_functions.hpp"
#include "shared/score_ranges.h"

namespace attune {

template <CaptureType kType, class... Index>
inline auto load_range(const ScoreCapture& capture, Index... indices) {
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
