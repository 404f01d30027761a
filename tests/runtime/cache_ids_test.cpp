// SPDX-License-Identifier: Apache-2.0
// Page and slot ids in host memory: which ids of a cache call are checked, and the message for an
// id that does not exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generator/core/system/error.hpp"
#include "runtime/operands/cache_check.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

class CacheIds : public ::testing::Test {
 protected:
  // Three requests of 40, 0 and 5 keys in pages of 16, of which the cache has 8.
  std::vector<int> lengths_{40, 0, 5}, begins_{0, 2, 3, 4}, slots_{7, -1, 0};
  std::vector<int> table_{3, 0, 7, -1, 99, -5, 1 << 30, 8, 2, -1, -1, -1};
  CacheArgs cache_{.kv_lengths = lengths_.data(),
                   .q_begins = begins_.data(),
                   .page_table = table_.data(),
                   .slots = nullptr,
                   .page_table_stride = 4,
                   .num_pages = 0,
                   .kv_begins = nullptr};

  std::string refusal(const std::string& more) const {
    return testing::error_text(
        [&] {
          check_host_ids(
              parse_problem(
                  "op=attention_kvcache,dtype=fp32,head_dim=64,heads=4/2,batch=3,seqlen_q=2,"
                  "seqlen_kv=64,num_pages=8" +
                  more),
              cache_);
        },
        ErrorCode::kInvalidArgument);
  }
};

TEST_F(CacheIds, IdsAfterTheLastKeyAreNotChecked) {
  for (const char* packed : {"", ",packed_q=1"})
    EXPECT_EQ(refusal(std::string(",page_size=16") + packed), "accepted");
}

TEST_F(CacheIds, APageOutsideTheCacheIsNamed) {
  for (const int id : {8, 99, -1}) {
    table_[2] = id;
    EXPECT_EQ(refusal(",page_size=16"), "cache.page_table[0][2] is " + std::to_string(id) +
                                            "; must be 0 to 7, the last page");
    EXPECT_EQ(refusal(",page_size=16,packed_q=1"), refusal(",page_size=16"));
  }
  table_[2] = 8;
  cache_.num_pages = 9;  // this call's cache has more
  EXPECT_EQ(refusal(",page_size=16"), "accepted");
  cache_.num_pages = 3;
  EXPECT_THAT(refusal(",page_size=16"), HasSubstr("page_table[0][0] is 3; must be 0 to 2"));
}

TEST_F(CacheIds, PagesThatNoRowSeesAreNotChecked) {
  table_[0] = -1;
  EXPECT_THAT(refusal(",page_size=16"), HasSubstr("page_table[0][0] is -1"));
  EXPECT_EQ(refusal(",page_size=16,window=20:0"), "accepted");
  EXPECT_THAT(refusal(",page_size=16,window=23:0"), HasSubstr("page_table[0][0] is -1"));
  begins_ = {0, 0, 1, 3};  // the request has no row in this call
  EXPECT_EQ(refusal(",page_size=16,packed_q=1"), "accepted");
}

TEST_F(CacheIds, ASlotOutsideTheCacheIsNamed) {
  cache_.page_table = nullptr;
  cache_.slots = slots_.data();
  EXPECT_EQ(refusal(""), "accepted");  // slot -1 has no keys and is not checked
  slots_[2] = 8;
  EXPECT_EQ(refusal(""), "cache.slots[2] is 8; must be 0 to 7, the last slot");
  cache_.kv_lengths = nullptr;  // all requests have all keys
  EXPECT_THAT(refusal(""), HasSubstr("cache.slots[1] is -1"));
}

}  // namespace
}  // namespace attune
