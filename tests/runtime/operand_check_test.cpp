// SPDX-License-Identifier: Apache-2.0
// Tables of operands that must be refused, each with words that its message must contain, and of
// layouts that must pass.
#include "runtime/operands/operand_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/core/system/error.hpp"
#include "runtime/engine/plan.hpp"
#include "runtime/operands/cache_check.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

// batch 2, seqlen_q 5, seqlen_kv 7, heads 4/2, head dim 64, fp16: addresses are never read.
class OperandCheck : public ::testing::Test {
 protected:
  static void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

  Problem problem_ =
      parse_problem("dtype=fp16,head_dim=64,heads=4/2,batch=2,seqlen_q=5,seqlen_kv=7");
  Operands operands_ =
      contiguous_operands(problem_, at(0x1000), at(0x2000), at(0x3000), at(0x4000), nullptr);

  std::string refusal() const {
    return testing::error_text([&] { check_operands(operands_of(problem_), operands_); },
                               ErrorCode::kInvalidArgument);
  }
};

TEST_F(OperandCheck, ContiguousOperandsPass) { EXPECT_EQ(refusal(), "accepted"); }

TEST_F(OperandCheck, HeadsBeforeRowsPass) {
  operands_.q = {at(0x1000), 4 * 5 * 64, 64, 5 * 64};  // [batch, heads, rows, head_dim]
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(OperandCheck, PackedQkvPasses) {
  operands_.k = {at(0x1000 + 512), 7 * 512, 512, 64};
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(OperandCheck, InputsMayRepeat) {
  operands_.k.batch_stride = operands_.v.batch_stride = operands_.v.head_stride = 0;
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(OperandCheck, NullIsNamed) {
  operands_.v.data = nullptr;
  EXPECT_THAT(refusal(), HasSubstr("v is a null pointer"));
}

TEST_F(OperandCheck, MisalignedAddressIsNamed) {
  operands_.q.data = at(0x1008);
  EXPECT_THAT(refusal(), HasSubstr("q is at address 0x1008; must be aligned to 16 bytes"));
}

TEST_F(OperandCheck, StrideThatIsNoMultipleOfAVectorIsNamed) {
  operands_.k.row_stride = 132;
  EXPECT_THAT(refusal(), HasSubstr("k.row_stride is 132 elements; must be a multiple of 8"));
}

TEST_F(OperandCheck, StrideInsideTheHeadDimensionOverlaps) {
  operands_.q.head_stride = 32;
  EXPECT_THAT(refusal(), HasSubstr("q.head_stride is 32 elements and overlaps the head dimension"));
}

TEST_F(OperandCheck, StrideThatOverlapsAnotherDimensionIsNamed) {
  operands_.o.row_stride = 3 * 64;  // four heads of 64 do not fit
  EXPECT_THAT(refusal(),
              HasSubstr("o.row_stride is 192 elements and overlaps head_stride, which spans 256"));
}

TEST_F(OperandCheck, OutputsMayNotRepeat) {
  operands_.o.batch_stride = 0;
  EXPECT_THAT(refusal(), HasSubstr("o.batch_stride is 0"));
}

TEST_F(OperandCheck, NegativeStrideIsNamed) {
  operands_.v.row_stride = -128;
  EXPECT_THAT(refusal(), HasSubstr("v.row_stride is -128"));
}

TEST_F(OperandCheck, StrideBeyondAddressesIsNamed) {
  operands_.v.batch_stride = INT64_MAX / 2;
  EXPECT_THAT(refusal(), HasSubstr("must stay in 64-bit addresses"));
}

TEST_F(OperandCheck, LseOverlapIsNamed) {
  alignas(16) float lse[64];
  operands_.lse = lse;
  EXPECT_EQ(refusal(), "accepted");
  operands_.lse_batch_stride = 20;
  operands_.lse_head_stride = 4;
  EXPECT_THAT(refusal(), HasSubstr("lse.head_stride is 4 elements and overlaps"));
  operands_.lse_head_stride = 0;
  EXPECT_THAT(refusal(), HasSubstr("lse.head_stride is 0; must be at least 5"));
}

TEST_F(OperandCheck, LseStridesBeyondAddressesAreNamed) {
  alignas(16) float lse[64];
  operands_.lse = lse;
  operands_.lse_batch_stride = 20;
  for (const int64_t stride : {INT64_MAX, INT64_MAX / 2, int64_t{1} << 61}) {
    operands_.lse_head_stride = stride;
    EXPECT_THAT(refusal(), HasSubstr("lse.head_stride is " + std::to_string(stride) +
                                     "; must be at most 144115188075855871: 4 steps must stay"));
  }
  operands_.lse_head_stride = 5;
  operands_.lse_batch_stride = int64_t{1} << 60;
  EXPECT_THAT(refusal(), HasSubstr("lse.batch_stride is"));
}

// These checks come before a plan is made, so before any other check.
TEST_F(OperandCheck, TensorMapsRefuseStridesOfAnySize) {
  for (const int64_t stride : {int64_t{1} << 39, int64_t{1} << 61, INT64_MAX}) {
    operands_.k.batch_stride = stride;
    ASSERT_TRUE(tensor_map_refusal(operands_of(problem_), operands_)) << stride;
    EXPECT_THAT(*tensor_map_refusal(operands_of(problem_), operands_),
                HasSubstr("beyond the 2^40 bytes of TMA"));
  }
  operands_.k.batch_stride = (int64_t{1} << 39) - 8;
  EXPECT_FALSE(tensor_map_refusal(operands_of(problem_), operands_));
}

TEST_F(OperandCheck, StridesOfSingleStepsDoNotMatter) {
  Problem one = problem_;
  one.batch = 1;
  operands_.q.batch_stride = 3;
  EXPECT_NO_THROW(check_operands(operands_of(one), operands_));
}

TEST_F(OperandCheck, EmptyOperandsNeedNoAddress) {
  Problem none = problem_;
  none.seqlen_kv = 0;
  operands_.k.data = operands_.v.data = nullptr;
  EXPECT_NO_THROW(check_operands(operands_of(none), operands_));
}

TEST_F(OperandCheck, EmptyOperandsSuitTensorMapsWhateverTheirStrides) {
  Problem none = problem_;
  none.seqlen_kv = 0;
  const OperandRules rules(operands_of(none));
  for (const int64_t stride : {int64_t{0}, int64_t{1}, int64_t{1} << 40}) {
    operands_.k = operands_.v = {nullptr, stride, stride, stride};
    EXPECT_FALSE(tensor_map_refusal(rules.list(), operands_)) << stride;
    EXPECT_TRUE(rules.suit_tensor_maps(operands_)) << stride;
  }
}

TEST_F(OperandCheck, WorkspaceIsChecked) {
  Plan plan;
  plan.problem = problem_;
  EXPECT_NO_THROW(check_workspace(plan, nullptr, 0));
  plan.launch.workspace_bytes = 1024;
  EXPECT_NO_THROW(check_workspace(plan, at(0x100), 1024));
  const auto text = [&](const void* workspace, int64_t bytes) -> std::string {
    return testing::error_text([&] { check_workspace(plan, workspace, bytes); });
  };
  EXPECT_EQ(text(at(0x100), 1023), "workspace_bytes is 1023; must be at least 1024 for this plan");
  EXPECT_THAT(text(nullptr, 1024), HasSubstr("workspace is a null pointer"));
  EXPECT_THAT(text(at(0x110), 1024), HasSubstr("aligned to 256 bytes"));
}

// Operands of 8 bits, head dim 72, V transposed, factors for blocks of 32 keys.
class NarrowOperandCheck : public OperandCheck {
 protected:
  NarrowOperandCheck() {
    problem_ = parse_problem(
        "dtype=e4m3,head_dim=72,heads=4/2,batch=2,seqlen_q=5,seqlen_kv=70,v_layout=transposed,"
        "scale_block_kv=32");
    operands_ =
        contiguous_operands(problem_, at(0x1000), at(0x2000), at(0x8000), at(0x4000), nullptr);
    operands_.q_scale = {factors_, 2, 1, 0, 2};
    operands_.k_scale = {factors_ + 4, 6, 3, 1, 1};
    operands_.v_scale = {factors_ + 16, 0, 0, 0, 1};
  }

  float factors_[32] = {};
};

TEST_F(NarrowOperandCheck, CachesHaveFactorsPerHeadOnly) {
  Problem problem;
  const auto of_cache = [&] {
    try {
      check_cache_factors(problem, operands_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(of_cache(), HasSubstr("k_scale.batch_stride is 6; must be 0"));
  operands_.k_scale.batch_stride = 0;
  EXPECT_THAT(of_cache(), HasSubstr("k_scale.block_stride is 1; must be 0"));
  operands_.k_scale.block_stride = 0;
  EXPECT_EQ(of_cache(), "accepted");
  operands_.v_scale.batch_stride = 2;
  EXPECT_THAT(of_cache(), HasSubstr("v_scale.batch_stride is 2"));
  operands_.v_scale.data = nullptr;
  EXPECT_EQ(of_cache(), "accepted");

  problem_ = parse_problem(
      "op=attention_kvcache,dtype=bf16,dtype_kv=e4m3,head_dim=64,heads=4/2,batch=2,seqlen=7");
  operands_ =
      contiguous_operands(problem_, at(0x1000), at(0x2000), at(0x8000), at(0x4000), nullptr);
  operands_.v_scale = {factors_, 0, 1, 0, 1};
  EXPECT_EQ(refusal(), "accepted");
  operands_.q_scale = {factors_, 0, 1, 0, 1};
  EXPECT_THAT(refusal(), HasSubstr("q_scale is given; must be NULL"));
  problem_.dtype_kv = Dtype::kBf16;
  operands_.q_scale = {};
  EXPECT_THAT(refusal(), HasSubstr("v_scale is given; must be NULL"));
}

// Kernels count pages, slots and packed keys in an int. A larger count once gave a cache without
// keys.
TEST(CacheCheck, MorePagesThanAnIntHoldsAreNamed) {
  int list[1] = {};
  CacheArgs cache{};
  const auto refusal_of = [&](const char* text, bool appends) {
    const Problem p = parse_problem(text);
    try {
      AppendArgs append{};
      append.row_slots = list;
      appends ? check_append(p, &cache, &append) : check_cache(p, &cache);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const char* const packed =
      "op=attention_kvcache,dtype=bf16,head_dim=64,heads=4/2,batch=2048,seqlen_q=1,"
      "seqlen_kv=1048576,packed_q=1,packed_kv=1";
  const char* const paged =
      "op=append_kv,dtype=bf16,head_dim=64,heads=4/2,batch=4096,seqlen_q=1,seqlen_kv=1048576,"
      "page_size=1";
  cache.q_begins = cache.kv_begins = list;
  EXPECT_THAT(refusal_of(packed, false), HasSubstr("the problem has up to 2147483648 pages"));
  cache.num_pages = 1000;
  EXPECT_EQ(refusal_of(packed, false), "accepted");
  cache = {};
  EXPECT_THAT(refusal_of(paged, true), HasSubstr("the problem has up to 4294967296 pages"));
  cache.num_pages = 1000;
  EXPECT_EQ(refusal_of(paged, true), "accepted");
}

// A plan does not constrain the page stride of a cache of one page, but a call may have more pages.
TEST(CacheCheck, StridesOfACallsPagesAreNamed) {
  const Problem p = parse_problem(
      "op=attention_kvcache,dtype=fp16,head_dim=64,heads=4/2,seqlen_q=1,seqlen_kv=16,page_size=16");
  const auto at = [](uintptr_t address) { return reinterpret_cast<void*>(address); };
  Operands operands =
      contiguous_operands(p, at(0x1000), at(0x2000), at(0x8000), at(0x4000), nullptr);
  CacheArgs cache{};
  operands.cache = &cache;
  operands.v.batch_stride = 2049;
  const auto refusal = [&] {
    try {
      check_operands(operands_of(p), operands);
      check_pages_of_call(p, operands);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal(), "accepted");
  cache.num_pages = 2;
  EXPECT_THAT(refusal(), HasSubstr("v.batch_stride is 2049 elements; must be a multiple of 8"));
  operands.v.batch_stride = 2048;
  EXPECT_EQ(refusal(), "accepted");
}

TEST(CacheCheck, ListsOfKeysAreNamed) {
  const std::string text =
      "op=attention_kvcache,dtype=fp16,head_dim=64,heads=4/2,batch=2,seqlen_q=1,seqlen_kv=64,"
      "page_size=16";
  const int list[4] = {};
  Operands operands;
  CacheArgs cache{};
  KeyListArgs lists{};
  operands.cache = &cache;
  operands.lists = &lists;
  const auto refusal = [&](const std::string& more) {
    return testing::error_text(
        [&] {
          const Problem p = parse_problem(text + more);
          check_cache(p, &cache);
          check_lists(p, operands);
        },
        ErrorCode::kInvalidArgument);
  };
  const std::string positions = ",key_indices=positions", places = ",key_indices=places";
  EXPECT_THAT(refusal(places), HasSubstr("cache.key_indices is a null pointer"));
  lists.indices = list;
  EXPECT_EQ(refusal(places), "accepted");
  EXPECT_THAT(refusal(positions), HasSubstr("cache.page_table is a null pointer"));
  lists.head_stride = -1;
  EXPECT_THAT(refusal(places), HasSubstr("cache.key_indices_head_stride is -1; must be 0 to"));
  lists.head_stride = INT64_MAX / 4 + 1;
  EXPECT_THAT(refusal(places), HasSubstr("cache.key_indices_head_stride is 2305843009213693952; "));
  lists.head_stride = 0;
  lists.row_stride = int64_t{1} << 60;
  EXPECT_THAT(refusal(places), HasSubstr("cache.key_indices_row_stride is 1152921504606846976; "));
  lists.row_stride = 0;
  cache.page_table = list;
  cache.page_table_stride = int64_t{1} << 61;
  EXPECT_THAT(refusal(positions), HasSubstr("cache.page_table_stride is 2305843009213693952; "));
  cache.page_table_stride = 4;
  EXPECT_EQ(refusal(positions), "accepted");
  EXPECT_THAT(refusal(places), HasSubstr("cache.page_table is given; must be NULL"));
  EXPECT_THAT(refusal(""), HasSubstr("cache.key_indices is given; must be NULL"));
  lists.indices = nullptr;
  lists.counts = list;
  EXPECT_THAT(refusal(""), HasSubstr("cache.key_counts is given; must be NULL"));
}

TEST(CacheCheck, GradientsTakeOnlyListsOfKeys) {
  const int list[4] = {};
  CacheArgs cache{};
  EXPECT_NO_THROW(check_lists_alone(nullptr));
  EXPECT_NO_THROW(check_lists_alone(&cache));
  for (const auto& [name, member] : {std::pair{"kv_lengths", &CacheArgs::kv_lengths},
                                     {"q_begins", &CacheArgs::q_begins},
                                     {"page_table", &CacheArgs::page_table},
                                     {"slots", &CacheArgs::slots},
                                     {"kv_begins", &CacheArgs::kv_begins}}) {
    CacheArgs given{};
    given.*member = list;
    EXPECT_THAT(
        testing::error_text([&] { check_lists_alone(&given); }, ErrorCode::kInvalidArgument),
        HasSubstr(std::string("cache.") + name + " is given; must be NULL"));
  }
}

// A call may have more pages than the problem says; they must not overlap if rows are written.
TEST(CacheCheck, PagesThatACallWritesMustNotOverlap) {
  const Problem p = parse_problem(
      "op=append_kv,dtype=fp32,head_dim=16,heads=1,batch=2,seqlen_q=16,seqlen_kv=16,page_size=16");
  const auto at = [](uintptr_t address) { return reinterpret_cast<void*>(address); };
  Operands operands;
  operands.k = {at(0x100000), 16, 32, 16};
  operands.v = {at(0x200000), 16, 32, 16};
  operands.k_new = operands.v_new = {at(0x300000), 256, 16, 16};
  CacheArgs cache{};
  operands.cache = &cache;
  cache.num_pages = 2;
  EXPECT_NO_THROW(check_pages_of_call(p, operands));
  cache.num_pages = 8;
  EXPECT_THROW(check_pages_of_call(p, operands), Error);
  operands.k.row_stride = operands.v.row_stride = 8 * 16;
  EXPECT_NO_THROW(check_pages_of_call(p, operands));
}

TEST_F(NarrowOperandCheck, DefaultLayoutPadsRowsAndPasses) {
  EXPECT_EQ(refusal(), "accepted");
  EXPECT_EQ(operands_.q.head_stride, 80);
  EXPECT_EQ(operands_.q.row_stride, 4 * 80);
  EXPECT_EQ(operands_.v.row_stride, 80) << "keys, rounded up to 16 bytes";
  EXPECT_EQ(operands_.v.head_stride, 72 * 80);
  EXPECT_EQ(operands_.v.batch_stride, 2 * 72 * 80);
  EXPECT_EQ(operands_.o.head_stride, 72);
}

TEST_F(NarrowOperandCheck, NoFactorsPass) {
  operands_.q_scale = operands_.k_scale = operands_.v_scale = {};
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(NarrowOperandCheck, StridesCountBytes) {
  operands_.k.row_stride = 168;
  EXPECT_THAT(refusal(), HasSubstr("k.row_stride is 168 elements; must be a multiple of 16"));
}

TEST_F(NarrowOperandCheck, TransposedValuesHoldAllKeys) {
  operands_.v.row_stride = 64;  // 70 keys do not fit
  EXPECT_THAT(refusal(), HasSubstr("v.row_stride is 64 elements and overlaps"));
  operands_.v.row_stride = 80;
  operands_.v.head_stride = 71 * 80;
  EXPECT_THAT(refusal(), HasSubstr("v.head_stride is 5680 elements and overlaps"));
}

TEST_F(NarrowOperandCheck, BadFactorsAreNamed) {
  operands_.k_scale.data = reinterpret_cast<float*>(at(0x1002));
  EXPECT_THAT(refusal(), HasSubstr("k_scale is at address 0x1002; must be aligned"));
  operands_.k_scale.data = factors_;
  operands_.k_scale.block_stride = -1;
  EXPECT_THAT(refusal(), HasSubstr("k_scale.block_stride is -1"));
  operands_.k_scale.block_stride = 1;
  operands_.v_scale.head_stride = -3;
  EXPECT_THAT(refusal(), HasSubstr("v_scale.head_stride is -3"));
  operands_.v_scale.head_stride = 0;
  operands_.k_scale.block_stride = int64_t{1} << 60;
  EXPECT_THAT(refusal(), HasSubstr("k_scale.block_stride is 1152921504606846976; must be at most "
                                   "192153584101141162: 3 steps"));
  operands_.k_scale.block_stride = 1;
  operands_.v_scale.batch_stride = INT64_MAX;
  EXPECT_THAT(refusal(), HasSubstr("v_scale.batch_stride is 9223372036854775807; must be at most "
                                   "288230376151711743: 2 steps"));
  operands_.v_scale.batch_stride = 0;
  operands_.q_scale.heads_per_scale = 3;
  EXPECT_THAT(refusal(), HasSubstr("q_scale.heads_per_scale is 3; must divide the 4"));
  operands_.q_scale.heads_per_scale = 0;
  EXPECT_THAT(refusal(), HasSubstr("q_scale.heads_per_scale is 0"));
}

TEST_F(NarrowOperandCheck, AttentionWritesNoFactors) {
  operands_.o_scale = {factors_, 2, 1, 0, 2};
  EXPECT_THAT(refusal(), HasSubstr("o_scale is given"));
}

TEST_F(OperandCheck, SixteenBitsTakeNoFactors) {
  float factor = 1;
  operands_.v_scale = {&factor, 0, 0, 0, 1};
  EXPECT_THAT(refusal(), HasSubstr("v_scale is given, but its tensor is fp16"));
}

TEST_F(OperandCheck, QuantiseWritesEachFactorOnce) {
  problem_ = parse_problem(
      "op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=64,heads=4,batch=2,seqlen=100,scale_block=32");
  float factors[2 * 4 * 4] = {};
  operands_ = contiguous_operands(problem_, at(0x100), nullptr, nullptr, at(0x200), nullptr);
  EXPECT_THAT(refusal(), HasSubstr("o_scale is a null pointer"));
  operands_.o_scale = {factors, 16, 4, 1, 1};
  EXPECT_NO_THROW(check_operands(operands_of(problem_), operands_));
  operands_.o_scale.block_stride = 0;
  EXPECT_THAT(refusal(), HasSubstr("o_scale.block_stride is 0; must be above 0: 4 parts"));
  operands_.o_scale = {factors, 8, 4, 1, 2};
  EXPECT_THAT(refusal(), HasSubstr("o_scale.heads_per_scale is 2"));
}

TEST_F(OperandCheck, TensorMapsTakeNeitherRepeatsNorHugeStrides) {
  EXPECT_EQ(tensor_map_refusal(operands_of(problem_), operands_), std::nullopt);
  operands_.k.head_stride = 0;
  EXPECT_THAT(tensor_map_refusal(operands_of(problem_), operands_).value_or(""),
              HasSubstr("k.head_stride is 0"));
  operands_.k.head_stride = 64;
  for (const int64_t huge :
       {int64_t{1} << 39, int64_t{1} << 61, INT64_MAX}) {  // in bytes beyond 64 bits
    operands_.v.batch_stride = huge;
    EXPECT_THAT(tensor_map_refusal(operands_of(problem_), operands_).value_or(""),
                HasSubstr("v.batch_stride"));
  }
}

}  // namespace
}  // namespace attune
