// SPDX-License-Identifier: Apache-2.0
// Checks a layout by its properties: the regions of a block of memory (shared memory, a workspace)
// are aligned and disjoint, lie in the block, and waste nothing. layout_regions.hpp of
// tests/templates has the regions of each kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/launch_plan.hpp"

namespace attune::testing {

struct Region {
  std::string name;
  int64_t begin = 0;
  int64_t bytes = 0;  // that a kernel uses; 0: the block has no such region
  int64_t alignment = 8;
};

// Checks the regions of a block of `bytes` bytes. `largest_gap`: the bytes after the last region
// that may be unused.
inline void expect_regions(std::vector<Region> regions, int64_t bytes, int64_t largest_gap = 15) {
  regions.erase(
      std::remove_if(regions.begin(), regions.end(), [](const Region& r) { return r.bytes == 0; }),
      regions.end());
  std::stable_sort(regions.begin(), regions.end(),
                   [](const Region& a, const Region& b) { return a.begin < b.begin; });
  int64_t end = 0;
  std::string before = "the start";
  for (const Region& r : regions) {
    EXPECT_EQ(r.begin % r.alignment, 0) << r.name;
    EXPECT_GE(r.begin, end) << r.name << " overlaps " << before;
    EXPECT_LT(r.begin - end, r.alignment) << "unused bytes between " << before << " and " << r.name;
    end = r.begin + r.bytes, before = r.name;
  }
  EXPECT_LE(end, bytes) << before << " ends outside of the block";
  EXPECT_LE(bytes - end, largest_gap) << "unused bytes after " << before;
}

// Checks the workspace of a plan: zeroed tensors are its first bytes, the others follow.
inline void expect_workspace(const LaunchPlan& plan) {
  std::vector<Region> regions;
  int64_t zeroed_end = 0;
  for (const PlacedTensor& t : plan.workspace) {
    const int64_t bytes = t.count() * dtype_bytes(t.dtype);
    regions.push_back({t.name, t.offset, bytes, t.alignment});
    if (t.zeroed)
      zeroed_end = std::max(zeroed_end, t.offset + bytes);
    else
      EXPECT_GE(t.offset, plan.zeroed_bytes) << t.name;
  }
  EXPECT_GE(plan.zeroed_bytes, zeroed_end);
  expect_regions(std::move(regions), plan.workspace_bytes, 255);
}

}  // namespace attune::testing
