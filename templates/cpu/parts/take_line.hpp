// SPDX-License-Identifier: Apache-2.0
// Takes adjacent elements of a capture as vectors, for shared/capture_range.h.
#pragma once

#include "cpu/parts/score_functions.hpp"
#include "shared/score_ranges.h"

namespace attune {

constexpr bool kTakesLines = true;

// Returns true if the elements are ints; else takes nothing.
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

}  // namespace attune
