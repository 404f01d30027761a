// SPDX-License-Identifier: Apache-2.0
// Which keys a query row sees: mask, window and their alignment (shared/attention_enums.h), for a run of rows and per lane.
#pragma once

#include "cpu/tile_product.hpp"
#include "shared/attention_args.h"

namespace attune {

constexpr bool kCausal = kMask != Mask::kNone;
constexpr bool kHasLeft = kWindowLeft >= 0;
constexpr bool kHasRight = kCausal || kWindowRight >= 0;
constexpr long long kLeft = kWindowLeft;
constexpr long long kRight = !kCausal ? kWindowRight : 0;  // keys right of the diagonal; a causal mask shows none

struct KeyRange {
  int begin;
  int end;
};

inline long long diagonal_offset(const AttentionArgs& args) {
  return kMask == Mask::kCausalTopLeft ? 0 : static_cast<long long>(args.seqlen_kv) - args.seqlen_q;
}

// Keys that at least one row of [first, last] sees. Empty when begin >= end.
inline KeyRange visible_keys(const AttentionArgs& args, long long first, long long last) {
  const long long offset = diagonal_offset(args);
  long long begin = 0;
  long long end = args.seqlen_kv;
  if constexpr (kHasLeft) begin = first + offset - kLeft > begin ? first + offset - kLeft : begin;
  if constexpr (kHasRight) end = last + offset + kRight + 1 < end ? last + offset + kRight + 1 : end;
  return begin < end ? KeyRange{static_cast<int>(begin), static_cast<int>(end)} : KeyRange{0, 0};
}

// Whether every row of [first, last] sees every key of the range.
inline bool sees_all(const AttentionArgs& args, long long first, long long last, KeyRange keys) {
  const long long offset = diagonal_offset(args);
  return !(kHasLeft && keys.begin < last + offset - kLeft) && !(kHasRight && keys.end - 1 > first + offset + kRight);
}

inline int clamp_to_int(long long value) {
  constexpr long long kBound = 1 << 30;
  return static_cast<int>(value < -kBound ? -kBound : value > kBound ? kBound : value);
}

// Sets the scores of hidden (key, row) pairs to -inf and finds `largest` anew. `row_step` is how many rows a lane stands
// below the panel's first row, `first`.
inline void mask_block(const AttentionArgs& args, long long first, const Ints (&row_step)[kVectors], KeyRange keys, Panel* scores,
                       Panel& largest) {
  for (int v = 0; v < kVectors; ++v) largest[v] = splat(-kInfinity);
  const long long diagonal = first + diagonal_offset(args);
  for (int n = keys.begin; n < keys.end; ++n) {
    Panel& row = scores[n - keys.begin];
    const int at_least = clamp_to_int(n - diagonal - kRight);
    const int at_most = clamp_to_int(n - diagonal + kLeft);
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kHasRight) row[v] = row_step[v] >= at_least ? row[v] : splat(-kInfinity);
      if constexpr (kHasLeft) row[v] = row_step[v] <= at_most ? row[v] : splat(-kInfinity);
      largest[v] = larger(row[v], largest[v]);
    }
  }
}

}  // namespace attune
