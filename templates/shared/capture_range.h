// SPDX-License-Identifier: Apache-2.0
// Finds ranges of captured values with one thread: on a CPU, and on a GPU if each lane has its own
// keys. Include it after a target's score functions, and after its take_line if it has one.
#pragma once

#include "shared/none/take_line.h"
#include "shared/score_ranges.h"

namespace attune {

// Takes all elements of a box, the last dimension fastest. `at`: the offset from the indices of the
// dimensions before kDimension.
template <CaptureType kType, int kDimension, int kRank, class Element>
ATTUNE_SCORE_FUNCTION void take_box(const ScoreCapture& capture, const CaptureBox<kRank>& box,
                                    long long at, Gathered<Element>& of) {
  at += box.first[kDimension] * capture.strides[kDimension];
  if constexpr (kDimension + 1 < kRank) {
    for (int i = 0; i < box.counts[kDimension]; ++i, at += capture.strides[kDimension])
      take_box<kType, kDimension + 1>(capture, box, at, of);
  } else {
    if constexpr (kTakesLines)
      if (capture.strides[kDimension] == 1 &&
          take_line<kType>(capture.data, at, box.counts[kDimension], of))
        return;
#pragma unroll 4
    for (int i = 0; i < box.counts[kDimension]; ++i) {
      const Element x = load_element<kType>(capture.data, at + i * capture.strides[kDimension]);
      take(of, x, x, x == x);
    }
  }
}

template <CaptureType kType, class... Index>
ATTUNE_SCORE_FUNCTION auto load_range_of_keys(const ScoreCapture& capture, Index... indices) {
  using Element = decltype(load_element<kType>(nullptr, 0));
  const auto box = capture_box(capture, indices...);
  if (box.size > kMostRangeLoads) return unseen(Element{});
  Gathered<Element> of = nothing_of(Element{});
  if constexpr (sizeof...(Index) == 0) {
    const Element x = load_element<kType>(capture.data, 0);
    return range_of(Gathered<Element>{x, x, x == x});
  } else {
    take_box<kType, 0>(capture, box, 0, of);
    return range_of(of);
  }
}

}  // namespace attune
