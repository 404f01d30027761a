// SPDX-License-Identifier: Apache-2.0
// kLanes x kLanes transposition: the way from rows in memory to one row a lane, and back.
#pragma once

#include "cpu/simd.hpp"

namespace attune {

template <int... kIndex>
struct LaneIndices {
  // a[0], b[0], a[1], b[1], ... from the lower or the upper halves of a and b.
  static Floats interleave_lower(Floats a, Floats b) {
    return __builtin_shufflevector(a, b, (kIndex / 2 + kIndex % 2 * kLanes)...);
  }
  static Floats interleave_upper(Floats a, Floats b) {
    return __builtin_shufflevector(a, b, (kIndex / 2 + kIndex % 2 * kLanes + kLanes / 2)...);
  }
};
template <class T, T... kIndex>
using LaneIndicesOf = LaneIndices<kIndex...>;
using AllLanes = __make_integer_seq<LaneIndicesOf, int, kLanes>;

// In place. Interleaving row i with row i + kLanes / 2 rotates the bits of (row, lane) by one;
// log2(kLanes) times swaps them. Not inlined: it is half of a small kernel's code, and compile time
// goes with code.
[[gnu::noinline]] inline void transpose(Floats (&rows)[kLanes]) {
#pragma clang loop unroll(full)
  for (int step = 1; step < kLanes; step *= 2) {
    Floats mixed[kLanes];
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes / 2; ++i) {
      mixed[2 * i] = AllLanes::interleave_lower(rows[i], rows[i + kLanes / 2]);
      mixed[2 * i + 1] = AllLanes::interleave_upper(rows[i], rows[i + kLanes / 2]);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes; ++i) rows[i] = mixed[i];
  }
}

}  // namespace attune
