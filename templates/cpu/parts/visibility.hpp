// SPDX-License-Identifier: Apache-2.0
// Finds the keys that query rows see (shared/visibility.h) under the compiled-in mask and window,
// for a range of rows and per lane.
#pragma once

#include "cpu/parts/simd.hpp"
#include "shared/attention_args.h"
#include "shared/visibility.h"

namespace attune {

constexpr bool kCausal = kMask != Mask::kNone;
constexpr bool kHasLeft = kWindowLeft >= 0;
constexpr bool kHasRight = kCausal || kWindowRight >= 0;
constexpr long long kLeft = kWindowLeft;
constexpr long long kRight =
    !kCausal ? kWindowRight : 0;  // keys right of the diagonal; a causal mask shows none

struct KeyRange {
  int begin;
  int end;
};

struct CompiledRule {
  static constexpr Mask mask = kMask;
  static constexpr int window_left = kWindowLeft;
  static constexpr int window_right = kWindowRight;
};

inline KeyInterval<long long> visible_keys(const AttentionArgs& args, long long row) {
  return visible_keys(CompiledRule(), args, row);
}

// Keys that at least one row of [first, last] sees. Empty when begin >= end.
inline KeyRange visible_keys(const AttentionArgs& args, long long first, long long last) {
  const KeyInterval<long long> keys{visible_keys(args, first).first, visible_keys(args, last).last};
  return keys.first <= keys.last
             ? KeyRange{static_cast<int>(keys.first), static_cast<int>(keys.last + 1)}
             : KeyRange{0, 0};
}

// True if every row of [first, last] sees every key of the range.
inline bool sees_all(const AttentionArgs& args, long long first, long long last, KeyRange keys) {
  return keys.begin >= visible_keys(args, last).first &&
         keys.end - 1 <= visible_keys(args, first).last;
}

inline int clamp_to_int(long long value) {
  constexpr long long kBound = 1 << 30;
  return static_cast<int>(value < -kBound ? -kBound : value > kBound ? kBound : value);
}

// Returns, for each lane, the distance of its row from the panel's first row. The panel's first
// lane has head `first_head` of its group.
inline PanelInts row_steps(int first_head) {
  int steps[kPanelRows];
  for (int i = 0; i < kPanelRows; ++i) steps[i] = (first_head + i) / kGqaRatio;
  PanelInts result;
  __builtin_memcpy(&result, steps, sizeof(result));
  return result;
}

// Sets the scores of hidden (key, row) pairs to -inf and finds `largest` anew. `first` is the
// panel's first row.
inline void mask_block(const AttentionArgs& args, long long first, PanelInts row_step,
                       KeyRange keys, Panel* scores, Panel& largest) {
  largest = -kInfinity;
  const long long diagonal = first + first_diagonal(CompiledRule(), args);
  for (int n = keys.begin; n < keys.end; ++n) {
    Panel& row = scores[n - keys.begin];
    if constexpr (kHasRight)
      row = row_step >= clamp_to_int(n - diagonal - kRight) ? row : Panel(-kInfinity);
    if constexpr (kHasLeft)
      row = row_step <= clamp_to_int(n - diagonal + kLeft) ? row : Panel(-kInfinity);
    largest = larger(row, largest);
  }
}

}  // namespace attune
