// SPDX-License-Identifier: Apache-2.0
// The keys that rows all see, apart from those on an edge of the mask or window: what prefill_cpu
// need not mask.
#pragma once

#include "cpu/visibility.hpp"

namespace attune {

// Keys that register tiles and lanes divide, where they follow one another from one key on.
constexpr int kWholeKeys = kRows % 3 == 0 ? 3 * (kRows / 3 > kLanes ? kRows / 3 : kLanes)
                                          : (kRows > kLanes ? kRows : kLanes);

// The part of `seen` that every row of [first, last] sees, which begins and ends, unless seen does,
// in whole steps of kWholeKeys; empty, at seen.begin, where there is none.
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
