// SPDX-License-Identifier: Apache-2.0
// The groups in which parts of a tile are joined (templates/shared/cache_layout.h).
#include "templates/shared/cache_layout.h"

#include <gtest/gtest.h>

namespace attune {
namespace {

TEST(CacheLayout, FewPartsAreOneGroup) {
  for (int parts = 1; parts <= kMostPartsAtOnce; ++parts) EXPECT_EQ(cache_join_group(parts), parts);
}

TEST(CacheLayout, EachJoinTakesAboutTheSquareRootOfManyParts) {
  for (int parts = kMostPartsAtOnce + 1; parts < 3000; ++parts) {
    const int group = cache_join_group(parts), groups = (parts + group - 1) / group;
    EXPECT_GT(groups, 1);
    EXPECT_LE(groups, group);
    EXPECT_LT((group - 1) * (group - 1), parts);
  }
}

TEST(CacheLayout, APartHasRoomForItsOwnStatsAndItsGroups) {
  EXPECT_EQ(cache_part_floats(16, 512), 16 * 512 + 2 * 16 + 2 * 16);
  EXPECT_EQ(cache_group_tickets(132, 2), 2 * 132 * 2);
}

}  // namespace
}  // namespace attune
