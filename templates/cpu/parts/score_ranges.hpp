// SPDX-License-Identifier: Apache-2.0
// Ranges of captures on a CPU.
#pragma once

#include "cpu/parts/score_functions.hpp"
#include "shared/capture_range.h"

namespace attune {

// Takes adjacent elements of a capture as vectors (shared/capture_range.h) if they are ints.
template <CaptureType kType, class Element>
inline bool take_line(const void*, long long, int, Gathered<Element>&) {
  return false;
}
template <CaptureType kType>
inline bool take_line(const void* data, long long at, int count, Gathered<int>& of) {
  int lo = of.lo, hi = of.hi;
#pragma clang loop vectorize(enable)
  for (int i = 0; i < count; ++i) {
    const int x = load_element<kType>(data, at + i);
    lo = __builtin_elementwise_min(lo, x);
    hi = __builtin_elementwise_max(hi, x);
  }
  of.lo = lo;
  of.hi = hi;
  return true;
}

template <CaptureType kType, class... Index>
inline auto load_range(const ScoreCapture& capture, Index... indices) {
  return load_range_of_keys<kType>(capture, indices...);
}

}  // namespace attune
