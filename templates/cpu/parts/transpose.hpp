// SPDX-License-Identifier: Apache-2.0
// Transposes kLanes x kLanes elements: from rows in memory to one row per lane, and back.
#pragma once

#include "cpu/parts/simd.hpp"

namespace attune {

constexpr int kGroups = kLanes / 4;  // of four lanes, within which one instruction can permute

template <int... kIndex>
struct LaneIndices {
  // Interleaves the lower halves of each group of a and b: a[0], b[0], a[1], b[1]; the next
  // function does the same for the upper halves.
  static Floats interleave_lower(Floats a, Floats b) {
    return __builtin_shufflevector(a, b,
                                   (kIndex / 4 * 4 + kIndex % 4 / 2 + kIndex % 2 * kLanes)...);
  }
  static Floats interleave_upper(Floats a, Floats b) {
    return __builtin_shufflevector(a, b,
                                   (kIndex / 4 * 4 + kIndex % 4 / 2 + kIndex % 2 * kLanes + 2)...);
  }
  // Returns every other group of a, then every other group of b.
  static Floats even_groups(Floats a, Floats b) {
    return __builtin_shufflevector(a, b, (kIndex / 4 * 8 + kIndex % 4)...);
  }
  static Floats odd_groups(Floats a, Floats b) {
    return __builtin_shufflevector(a, b, (kIndex / 4 * 8 + kIndex % 4 + 4)...);
  }
};
template <class T, T... kIndex>
using LaneIndicesOf = LaneIndices<kIndex...>;
using AllLanes = __make_integer_seq<LaneIndicesOf, int, kLanes>;

// Transposes in place. First, four rows at a time: interleaving row i with row i + 2 rotates the
// bits of (row, lane of a group), and doing so twice swaps row and lane. Then groups of lanes and
// groups of four rows are exchanged, in log2(kGroups) steps.
inline void transpose(Floats (&rows)[kLanes]) {
  Floats mixed[kLanes];
#pragma clang loop unroll(full)
  for (int first = 0; first < kLanes; first += 4) {
    Floats* four = rows + first;
    Floats* out = mixed + first;
    const Floats even_lower = AllLanes::interleave_lower(four[0], four[2]);
    const Floats even_upper = AllLanes::interleave_upper(four[0], four[2]);
    const Floats odd_lower = AllLanes::interleave_lower(four[1], four[3]);
    const Floats odd_upper = AllLanes::interleave_upper(four[1], four[3]);
    out[0] = AllLanes::interleave_lower(even_lower, odd_lower);
    out[1] = AllLanes::interleave_upper(even_lower, odd_lower);
    out[2] = AllLanes::interleave_lower(even_upper, odd_upper);
    out[3] = AllLanes::interleave_upper(even_upper, odd_upper);
  }
#pragma clang loop unroll(full)
  for (int step = 1; step < kGroups; step *= 2) {
    Floats moved[kLanes];
#pragma clang loop unroll(full)
    for (int pair = 0; pair < kLanes / 8; ++pair) {
#pragma clang loop unroll(full)
      for (int i = 0; i < 4; ++i) {
        const Floats a = mixed[8 * pair + i], b = mixed[8 * pair + 4 + i];
        moved[4 * pair + i] = AllLanes::even_groups(a, b);
        moved[4 * (pair + kGroups / 2) + i] = AllLanes::odd_groups(a, b);
      }
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes; ++i) mixed[i] = moved[i];
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < kLanes; ++i) rows[i] = mixed[i];
}

}  // namespace attune
