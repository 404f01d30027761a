// SPDX-License-Identifier: Apache-2.0
// Reads two neighbouring columns of a captured line, for the near form of score programs
// (shared/score_steps.h). A column's offset is an even compile-time constant, so its address takes
// no instruction.
#pragma once

#include "cuda/parts/score_functions.cuh"
#include "cuda/ptx/l2_policy.cuh"
#include "shared/score_steps.h"

namespace attune {

// Converts the two 16-bit values in a word to floats.
template <CaptureType kType>
__device__ __forceinline__ void unpack_pair(unsigned word, float* first, float* second) {
  if constexpr (kType == CaptureType::kBf16) {
    *first = __uint_as_float(word << 16);
    *second = __uint_as_float(word & 0xFFFF0000u);
  } else {
    *first = fp16_to_float(static_cast<unsigned short>(word & 0xFFFFu));
    *second = fp16_to_float(static_cast<unsigned short>(word >> 16));
  }
}

// Loads the elements at `offset` and `offset` + 1. With kIsPair the address is a multiple of two
// elements, so one load reads both.
template <CaptureType kType, bool kIsPair, class T>
__device__ __forceinline__ void load_pair(const void* at, int offset, T* first, T* second) {
  constexpr bool kIs16Bit = kType == CaptureType::kBf16 || kType == CaptureType::kFp16;
  if constexpr (kIsPair && kIs16Bit) {
    unpack_pair<kType>(__ldg(static_cast<const unsigned*>(at) + offset / 2), first, second);
  } else if constexpr (kIsPair && kType == CaptureType::kFp32) {
    const float2 both = __ldg(static_cast<const float2*>(at) + offset / 2);
    *first = both.x;
    *second = both.y;
  } else if constexpr (kIsPair && kType == CaptureType::kInt32) {
    const int2 both = __ldg(static_cast<const int2*>(at) + offset / 2);
    *first = both.x;
    *second = both.y;
  } else if constexpr (kIsPair && capture_bytes(kType) == 1) {
    const unsigned both = __ldg(static_cast<const unsigned short*>(at) + offset / 2);
    *first = static_cast<T>(both & 0xFFu);  // a bool becomes true if the byte is not 0
    *second = static_cast<T>(both >> 8);
  } else {
    *first = load_element<kType>(at, offset);
    *second = load_element<kType>(at, offset + 1);
  }
}

// Prefetches into L2 those elements of a line that a later step reads. Of `span` elements from
// `index` on, this call prefetches share number `part` of `parts`.
template <CaptureType kType>
__device__ __forceinline__ void prefetch_in_line(const void* line, const ScoreCapture& capture,
                                                 int dimension, int index, int part, int parts,
                                                 int span) {
  constexpr int kElements = kPrefetchedBytes / capture_bytes(kType);
  const int last = min(index + span, capture.extents[dimension]);
  for (int at = index + part * kElements; at < last; at += parts * kElements)
    if (at >= 0 && capture.strides[dimension] == 1) prefetch_l2(line_element<kType>(line, at));
}

}  // namespace attune
