// SPDX-License-Identifier: Apache-2.0
// Loads elements of tensors along the keys for panels, whose lanes are rows. Elements are read
// along the keys of each row and transposed; gathers would read them one by one. Printed programs
// call these functions (generator/score/print/panel_printer.hpp).
#pragma once

#include "cpu/parts/score_functions.hpp"
#include "cpu/parts/simd.hpp"
#include "cpu/parts/transpose.hpp"
#include "shared/capture_bytes.h"

namespace attune {

// Returns the address of an element of a line. Lowers *keys to the number of adjacent elements from
// there on.
template <CaptureType kType>
ATTUNE_SCORE_FUNCTION const void* line_from(const void* line, const ScoreCapture& capture,
                                            int dimension, int index, int* keys) {
  const bool is_inside = capture.strides[dimension] == 1 && index >= 0;
  *keys = score_min(*keys, is_inside ? capture.extents[dimension] - index : 0);
  return static_cast<const char*>(line) + static_cast<long long>(index) * capture_bytes(kType);
}

template <class T, int kCount>
using Vector = T __attribute__((ext_vector_type(kCount)));

// Returns four adjacent elements of each of the rows 0, 4, 8 .. of `rows`, from element `from` of
// the row on.
template <class T>
inline Vector<T, kLanes> quads_of(const void* const* rows, int from) {
  const auto quad = [&](int row) {
    Vector<T, 4> four;
    __builtin_memcpy(&four, static_cast<const T*>(rows[row]) + from, sizeof(four));
    return four;
  };
  if constexpr (kLanes == 4) {
    return quad(0);
  } else {
    const auto low = __builtin_shufflevector(quad(0), quad(4), 0, 1, 2, 3, 4, 5, 6, 7);
    if constexpr (kLanes == 8) {
      return low;
    } else {
      const auto high = __builtin_shufflevector(quad(8), quad(12), 0, 1, 2, 3, 4, 5, 6, 7);
      return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                     15);
    }
  }
}

// Loads words as floats, or as the bits of ints; a bool is 0 or 1.
template <CaptureType kType>
inline Floats words_of(const void* const* rows, int from) {
  if constexpr (kType == CaptureType::kFp32)
    return quads_of<float>(rows, from);
  else if constexpr (kType == CaptureType::kBf16)
    return floats_of_bf16(quads_of<unsigned short>(rows, from));
  else if constexpr (kType == CaptureType::kFp16)
    return floats_of_fp16(quads_of<unsigned short>(rows, from));
  else if constexpr (kType == CaptureType::kInt32)
    return bits_as<Floats>(quads_of<int>(rows, from));
  else if constexpr (kType == CaptureType::kInt64)
    return bits_as<Floats>(__builtin_convertvector(quads_of<long long>(rows, from), Ints));
  else if constexpr (kType == CaptureType::kUint8)
    return bits_as<Floats>(__builtin_convertvector(quads_of<unsigned char>(rows, from), Ints));
  else
    return bits_as<Floats>(
        (__builtin_convertvector(quads_of<unsigned char>(rows, from), Ints) != 0) & 1);
}

// Takes from each four lanes the first (kHalf 0) or last two of a and b, alternating: a b a b.
template <int kHalf, int... kLane>
inline Floats in_turns(Floats a, Floats b, LaneIndices<kLane...>) {
  return __builtin_shufflevector(
      a, b, (kLane / 4 * 4 + 2 * kHalf + kLane % 4 / 2 + (kLane % 2 != 0 ? kLanes : 0))...);
}

// Takes the same lanes in order: a a b b.
template <int kHalf, int... kLane>
inline Floats in_halves(Floats a, Floats b, LaneIndices<kLane...>) {
  return __builtin_shufflevector(
      a, b, (kLane / 4 * 4 + 2 * kHalf + kLane % 2 + (kLane % 4 >= 2 ? kLanes : 0))...);
}

// Prefetches `keys` elements of a line into L2, because rows that lie a multiple of 4 KB apart
// share a set of L1.
template <CaptureType kType>
inline void fetch_line(const void* line, int keys) {
  constexpr int kCacheLine = 64;
  const char* const from = static_cast<const char*>(line);
  for (int at = 0; at < keys * capture_bytes(kType); at += kCacheLine)
    __builtin_prefetch(from + at, 0, 2);
}

// The keys that are staged at once. Scores stage whole cache lines, because loads of the next rows
// may evict a line. Masks stage few keys, because one key may decide.
constexpr int kScoreStagedKeys = 16, kMaskStagedKeys = kLanes;

// Stages kKeys keys of all rows of a panel, from element `first` of each row's line on. Rows become
// columns. Rows four apart share a vector when they are loaded, so that only groups of four lanes
// need a transposition.
template <CaptureType kType, class T, int kKeys>
inline void stage_line(const void* const (&lines)[kPanelRows], int first,
                       T (&staged)[kKeys][kPanelRows]) {
  static_assert(sizeof(T) == 4);
  for (int part = 0; part < kPanelRows; part += kLanes)
    for (int key = 0; key < kKeys; key += 4) {
      const void* const* rows = lines + part;
      const Floats r0 = words_of<kType>(rows, first + key);
      const Floats r1 = words_of<kType>(rows + 1, first + key);
      const Floats r2 = words_of<kType>(rows + 2, first + key);
      const Floats r3 = words_of<kType>(rows + 3, first + key);
      const Floats low01 = in_turns<0>(r0, r1, AllLanes()), low23 = in_turns<0>(r2, r3, AllLanes());
      const Floats high01 = in_turns<1>(r0, r1, AllLanes());
      const Floats high23 = in_turns<1>(r2, r3, AllLanes());
      const Floats keys[4] = {
          in_halves<0>(low01, low23, AllLanes()), in_halves<1>(low01, low23, AllLanes()),
          in_halves<0>(high01, high23, AllLanes()), in_halves<1>(high01, high23, AllLanes())};
#pragma clang loop unroll(full)  // else the four vectors go through the stack
      for (int i = 0; i < 4; ++i)
        __builtin_memcpy(&staged[key + i][part], &keys[i], sizeof(keys[i]));
    }
}

}  // namespace attune
