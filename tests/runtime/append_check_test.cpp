// SPDX-License-Identifier: Apache-2.0
// Checks of append_kv's arguments on the host, before anything runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/core/system/error.hpp"
#include "runtime/operands/cache_check.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

int list[1] = {};

std::string refusal_of(const char* text, const CacheArgs& cache, const AppendArgs& append) {
  return testing::error_text([&] { check_append(parse_problem(text), &cache, &append); },
                             ErrorCode::kInvalidArgument);
}

// Kernels index slots with 32 bits. The limit counts the slots of this call, not of the plan.
TEST(AppendCheck, PlacesInSlotsAreBelow32Bits) {
  const char* const text =
      "op=append_kv,dtype=bf16,head_dim=64,heads=4/2,batch=2,seqlen_q=1,seqlen_kv=65536";
  CacheArgs cache{};
  AppendArgs append{};
  append.row_slots = list;
  EXPECT_EQ(refusal_of(text, cache, append), "accepted");
  cache.num_pages = 65536;
  EXPECT_THAT(refusal_of(text, cache, append),
              HasSubstr("the cache has 65536 slots of 65536 keys"));
}

// Packed rows may lie before the first request and after the last one. Without a list of requests
// nothing says which request a row belongs to.
TEST(AppendCheck, RowsOutsideOfRequestsNeedAList) {
  const char* const text =
      "op=append_kv,dtype=bf16,head_dim=64,heads=4/2,batch=2,seqlen_q=3,seqlen_kv=64,packed_q=1";
  CacheArgs cache{};
  AppendArgs append{};
  append.num_rows = 100;
  append.row_slots = list;
  EXPECT_THAT(refusal_of(text, cache, append), HasSubstr("append.num_rows is 100; must be 0 to 6"));
  cache.q_begins = list;
  EXPECT_EQ(refusal_of(text, cache, append), "accepted");
}

TEST(AppendCheck, AnglesNeedPositionsOrLengths) {
  const char* const text =
      "op=append_kv,dtype=bf16,head_dim=64,heads=4/2,batch=2,seqlen_q=3,seqlen_kv=64,rotary=fp32";
  CacheArgs cache{};
  AppendArgs append{};
  append.row_slots = list;
  EXPECT_THAT(refusal_of(text, cache, append),
              HasSubstr("without append.positions and cache.kv_lengths"));
  cache.kv_lengths = list;
  EXPECT_EQ(refusal_of(text, cache, append), "accepted");
  cache.kv_lengths = nullptr;
  append.positions = list;
  EXPECT_EQ(refusal_of(text, cache, append), "accepted");
}

}  // namespace
}  // namespace attune
