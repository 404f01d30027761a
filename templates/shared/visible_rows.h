// SPDX-License-Identifier: Apache-2.0
// Finds the rows of queries that see a key: the inverse of visibility.h, for kernels that keep keys
// and walk over rows.
#pragma once

#include "shared/visibility.h"

namespace attune {

// Rows [first, last]; empty if last < first. Names as in visibility.h.
struct RowInterval {
  int first;
  int last;
};

template <class Rule, class Lengths>
ATTUNE_HOST_DEVICE constexpr RowInterval visible_rows(const Rule& rule, const Lengths& lengths,
                                                      long long key) {
  const long long on_diagonal = key - first_diagonal(rule, lengths);
  const long long rows = lengths.seqlen_q;
  long long first = 0, last = rows - 1;
  if (rule.mask != Mask::kNone) {  // a row ends at the diagonal, whatever the window allows
    first = on_diagonal;
  } else if (rule.window_right >= 0) {
    first = on_diagonal - rule.window_right;
  }
  if (rule.window_left >= 0 && on_diagonal + rule.window_left < last)
    last = on_diagonal + rule.window_left;
  if (first < 0) first = 0;
  if (first > rows) first = rows;
  if (last < -1) last = -1;
  return {static_cast<int>(first), static_cast<int>(last)};
}

}  // namespace attune
