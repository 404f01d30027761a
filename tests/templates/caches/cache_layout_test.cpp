// SPDX-License-Identifier: Apache-2.0
// Kernels of caches: the groups in which parts of a tile are joined (templates/shared/
// cache_layout.h), and shared memory of mla_sm90 and decode_sm80.
#include "templates/shared/layouts/cache_layout.h"

#include <gtest/gtest.h>

#include "tests/templates/shared/layout_regions.hpp"

namespace attune {
namespace {

using testing::expect_regions;
using testing::regions_of;

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

TEST(MlaSm90Layout, RegionsFitTheBlock) {
  for (const int head_dim : {192, 448, 512, 576})
    for (const int rows : {8, 16, 32, 64})
      for (const bool has_lists : {false, true}) {
        const MlaSm90Layout l = mla_sm90_layout(head_dim, rows, has_lists);
        expect_regions(regions_of(l, head_dim, rows, has_lists), l.bytes);
        EXPECT_LE(l.bytes, kMlaSharedBytes);
        EXPECT_GE(l.parts.k_slots, l.slots_of_step);
      }
}

TEST(DecodeShared, RegionsFollowEachOther) {
  for (const int warps : {1, 2, 4, 8})
    for (const int rings : {1, warps})
      for (const int slots : {2, 3, 5})
        for (const int head_dim : {64, 176, 192, 256})
          for (const int rows : {8, 16})
            for (const int exchange : {0, decode_exchange_bytes(32, 4)}) {
              const DecodeShared l =
                  decode_shared(warps, rings, slots, 16 * 272, head_dim, rows, exchange);
              expect_regions(regions_of(l, warps, rings, slots, head_dim, rows, exchange), l.bytes);
            }
}

// The shares of four warps hold each column of a wide head, and fit registers.
TEST(DecodeColumns, FourWarpsShareAWideHead) {
  for (int qk = 16; qk <= 576; qk += 16)
    for (int v = 16; v <= 512; v += 16)
      for (const bool v_in_k : {false, true}) {
        if (v_in_k && v > qk) continue;
        const DecodeColumns own = decode_columns(qk, v, v_in_k);
        const bool is_wide = qk > 256 || v > 256;
        ASSERT_EQ(own.warps, is_wide ? 4 : 1);
        ASSERT_EQ(own.values_in_keys, is_wide && v_in_k);
        ASSERT_GE(own.warps * own.v, v);
        ASSERT_GE(own.warps * (own.qk - (own.values_in_keys ? own.v : 0)),
                  qk - (own.values_in_keys ? v : 0));
        if (is_wide) {
          ASSERT_LE(own.qk, 160);
          ASSERT_LE(own.v, 128);
        }
      }
}

}  // namespace
}  // namespace attune
