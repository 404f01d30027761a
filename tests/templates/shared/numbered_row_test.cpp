// SPDX-License-Identifier: Apache-2.0
// Rows counted through heads and batches, also beyond what an int counts.
#include "templates/shared/numbered_row.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace attune {
namespace {

TEST(NumberedRow, CountsRowsThenHeadsThenBatches) {
  long long number = 0;
  for (int batch = 0; batch < 3; ++batch)
    for (int head = 0; head < 4; ++head)
      for (int row = 0; row < 5; ++row) {
        const NumberedRow place = numbered_row(number++, 3, 4, 5);
        EXPECT_TRUE(place.exists);
        EXPECT_EQ(place.batch, batch);
        EXPECT_EQ(place.head, head);
        EXPECT_EQ(place.row, row);
      }
  EXPECT_FALSE(numbered_row(number, 3, 4, 5).exists);
}

TEST(NumberedRow, MoreHeadsOfAllBatchesThanAnIntHolds) {
  constexpr int kBatch = 1 << 26, kHeads = 96;
  constexpr int64_t kAll = int64_t{kBatch} * kHeads;
  static_assert(kAll > std::numeric_limits<int>::max());
  const NumberedRow last = numbered_row(kAll * 2 - 1, kBatch, kHeads, 2);
  EXPECT_TRUE(last.exists);
  EXPECT_EQ(last.batch, kBatch - 1);
  EXPECT_EQ(last.head, kHeads - 1);
  EXPECT_EQ(last.row, 1);
  EXPECT_FALSE(numbered_row(kAll * 2, kBatch, kHeads, 2).exists);
  const NumberedRow beyond_int = numbered_row(int64_t{1} << 33, kBatch, kHeads, 2);
  EXPECT_TRUE(beyond_int.exists);
  EXPECT_EQ((int64_t{beyond_int.batch} * kHeads + beyond_int.head) * 2 + beyond_int.row,
            int64_t{1} << 33);
}

}  // namespace
}  // namespace attune
