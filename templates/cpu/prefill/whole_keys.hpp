// SPDX-License-Identifier: Apache-2.0
// Separates the keys that all rows see, which prefill_cpu need not mask, from keys on an edge of
// the mask or window.
#pragma once

#include "cpu/parts/visibility.hpp"

namespace attune {

// The number of keys in a step, a multiple of both kRows and kLanes.
constexpr int kWholeKeys = kRows % 3 == 0 ? 3 * (kRows / 3 > kLanes ? kRows / 3 : kLanes)
                                          : (kRows > kLanes ? kRows : kLanes);

// Returns the part of `seen` that every row of [first, last] sees. It begins and ends at whole
// steps of kWholeKeys, or where `seen` does. If there is no such part, the result is empty, at
// seen.begin.
inline KeyRange part_seen_by_all(const AttentionArgs& args, long long first, long long last,
                                 KeyRange seen) {
  const long long before = visible_keys(args, last).first - seen.begin;
  const long long until = visible_keys(args, first).last + 1 - seen.begin;
  const long long count = seen.end - seen.begin;
  const long long begin = before > 0 ? (before + kWholeKeys - 1) / kWholeKeys * kWholeKeys : 0;
  const long long end = until < count ? until / kWholeKeys * kWholeKeys : count;
  if (begin >= end) return {seen.begin, seen.begin};
  return {static_cast<int>(seen.begin + begin), static_cast<int>(seen.begin + end)};
}

}  // namespace attune
