// SPDX-License-Identifier: Apache-2.0
// Finds the keys that a row of queries sees. Host code and every kernel compile this text. Only the
// references and the float64 oracle state the rule separately, because they must find mistakes in
// this text.
#pragma once

#include "shared/attention_enums.h"
#include "shared/host_device.h"

namespace attune {

// Keys [first, last]; empty if last < first.
template <class Int>
struct KeyInterval {
  Int first;
  Int last;
  ATTUNE_HOST_DEVICE constexpr bool contains(Int key) const { return key >= first && key <= last; }
};

// A Rule has the members mask, window_left and window_right (attention_enums.h). It is a Problem or
// its spec, or in a kernel a type of compiled-in constants. Lengths has seqlen_q and seqlen_kv. It
// is a Problem, a Shape, or a kernel's arguments; these functions read its members only when they
// need them, because that affects a kernel's registers. Int must hold the lengths and their sums.

// Returns the key on the diagonal of row 0.
template <class Rule, class Lengths>
ATTUNE_HOST_DEVICE constexpr auto first_diagonal(const Rule& rule, const Lengths& lengths) {
  return rule.mask == Mask::kCausalTopLeft ? 0 : lengths.seqlen_kv - lengths.seqlen_q;
}

template <class Rule, class Lengths, class Int>
ATTUNE_HOST_DEVICE constexpr KeyInterval<Int> visible_keys(const Rule& rule, const Lengths& lengths,
                                                           Int row) {
  const Int diagonal = row + first_diagonal(rule, lengths);
  KeyInterval<Int> keys{0, static_cast<Int>(lengths.seqlen_kv - 1)};
  if (rule.window_left >= 0)
    keys.first = diagonal > rule.window_left ? diagonal - rule.window_left : 0;
  if (rule.mask != Mask::kNone) {  // the row ends at the diagonal, whatever the window allows
    keys.last = diagonal < keys.last ? diagonal : keys.last;
  } else if (rule.window_right >= 0) {
    const long long last = keys.last, limit = static_cast<long long>(diagonal) + rule.window_right;
    keys.last = static_cast<Int>(last < limit ? last : limit);
  }
  return keys;
}

// Returns the keys that at least one of the rows [first_row, last_row] sees. Both limits rise with
// the row.
template <class Rule, class Lengths, class Int>
ATTUNE_HOST_DEVICE constexpr KeyInterval<Int> keys_of_rows(const Rule& rule, const Lengths& lengths,
                                                           Int first_row, Int last_row) {
  return {visible_keys(rule, lengths, first_row).first, visible_keys(rule, lengths, last_row).last};
}

}  // namespace attune
