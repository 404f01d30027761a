// SPDX-License-Identifier: Apache-2.0
// Refusals of append_kv by the host before anything runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/core/error.hpp"
#include "runtime/cache_check.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

int list[1] = {};

std::string refusal_of(const char* text, const CacheArgs& cache, const AppendArgs& append) {
  try {
    check_append(parse_problem(text), &cache, &append);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

// Kernels find a place in slots by 32 bits: places of this call's slots count, not of those that
// were planned.
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

// Rows end to end may stand ahead of the first request and behind the last; without a list nobody
// says which are of one.
TEST(AppendCheck, RowsBeyondThoseOfRequests) {
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

TEST(AppendCheck, AnglesOfRowsWhosePlacesAreGiven) {
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
