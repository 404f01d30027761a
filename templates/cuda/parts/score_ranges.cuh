// SPDX-License-Identifier: Apache-2.0
// Finds ranges of captures (tensors that a program reads) on a GPU. The lanes of a warp read the
// elements together, so all lanes call at once and get the same result.
#pragma once

#include "cuda/parts/score_functions.cuh"
#include "shared/score_ranges.h"

namespace attune {

template <class Element>
__device__ __forceinline__ Gathered<Element> over_warp(Gathered<Element> of) {
#pragma unroll 1
  for (int step = 16; step > 0; step /= 2) {
    const Element lo = static_cast<Element>(__shfl_xor_sync(~0u, of.lo, step));
    const Element hi = static_cast<Element>(__shfl_xor_sync(~0u, of.hi, step));
    take(of, lo, hi, true);
  }
  of.known = __all_sync(~0u, of.known);
  return of;
}

// Returns the range of a capture over a box of indices. It is not inlined because a program calls
// it for rows and for keys, and inlining would compile it twice. `capture` is passed by value, so
// that the caller's copy can stay in the kernel's arguments.
template <CaptureType kType, class... Index>
__device__ __noinline__ auto load_range(const ScoreCapture capture, Index... indices) {
  using Element = decltype(load_element<kType>(nullptr, 0));
  const auto box = capture_box(capture, indices...);
  if (box.size > kMostRangeLoads) return unseen(Element{});
  Gathered<Element> of = nothing_of(Element{});
  constexpr int kAtOnce = 4;
  const int lane = threadIdx.x % 32, size = static_cast<int>(box.size);
  constexpr int kLast = sizeof...(Index) > 0 ? sizeof...(Index) - 1 : 0;
  // Reads several elements of a line at a time, so that one wait covers all. Past the end it reads
  // the last element again.
  if (sizeof...(Index) > 0 && size == box.counts[kLast]) {
    const long long first = box_offset_of_first(box, capture), step = capture.strides[kLast];
#pragma unroll 1
    for (int i = lane; i < size; i += 32 * kAtOnce) {
      Element x[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        x[k] = load_element<kType>(capture.data, first + score_min(i + 32 * k, size - 1) * step);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) take(of, x[k], x[k], x[k] == x[k]);
    }
    return range_of(over_warp(of));
  }
#pragma unroll 1
  for (int i = lane; i < size; i += 32) {
    const Element x = load_element<kType>(capture.data, box_offset(box, capture, i));
    take(of, x, x, x == x);
  }
  return range_of(over_warp(of));
}

}  // namespace attune
