// SPDX-License-Identifier: Apache-2.0
// Ranges of captures on a GPU: the lanes of a warp read the elements together, so all of them call at once and get one result.
#pragma once

#include "cuda/attention/score_functions.cuh"
#include "shared/score_ranges.h"

namespace attune {

template <class Element>
__device__ __forceinline__ Gathered<Element> over_warp(Gathered<Element> of) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const Element lo = static_cast<Element>(__shfl_xor_sync(~0u, of.lo, step));
    const Element hi = static_cast<Element>(__shfl_xor_sync(~0u, of.hi, step));
    take(of, lo, hi, true);
  }
  of.known = __all_sync(~0u, of.known);
  return of;
}

template <CaptureType kType, class... Index>
__device__ __forceinline__ auto load_range(const ScoreCapture& capture, Index... indices) {
  using Element = decltype(load_element<kType>(nullptr, 0));
  const auto box = capture_box(capture, indices...);
  if (box.size > kMostRangeLoads) return unseen(Element{});
  Gathered<Element> of = nothing_of(Element{});
  // Several at a time, so that one waits for all; behind the last one it is taken again.
  constexpr int kAtOnce = 4;
  const int last = static_cast<int>(box.size) - 1;
  for (int first = static_cast<int>(threadIdx.x % 32); first <= last; first += 32 * kAtOnce) {
    Element x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      x[i] = load_element<kType>(capture.data,
                                 box_offset(box, capture, score_min(first + 32 * i, last)));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) take(of, x[i], x[i], x[i] == x[i]);
  }
  return range_of(over_warp(of));
}

}  // namespace attune
