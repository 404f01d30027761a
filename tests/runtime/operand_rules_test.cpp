// SPDX-License-Identifier: Apache-2.0
// A plan's compiled rules must agree with the checks that give messages, on randomly changed
// operands of many kinds.
#include "runtime/operands/operand_rules.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "generator/core/system/error.hpp"
#include "runtime/operands/operand_check.hpp"

namespace attune {
namespace {

constexpr const char* kProblems[] = {
    "dtype=fp16,head_dim=64,heads=4/2,batch=2,seqlen_q=5,seqlen_kv=7",
    "dtype=fp32,head_dim=40,heads=3,batch=1,seqlen=4",
    "dtype=bf16,head_dim_qk=48,head_dim_v=16,heads=2/1,batch=3,seqlen_q=1,seqlen_kv=9",
    "dtype=fp16,head_dim=64,heads=4,batch=2,seqlen_q=5,seqlen_kv=0",
    "dtype=e4m3,head_dim=64,heads=4/2,batch=2,seqlen_q=70,seqlen_kv=130,scale_block_q=64",
    "dtype=e4m3,head_dim=32,heads=2,batch=2,seqlen=48,v_layout=transposed",
    "op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=64,heads=4,batch=2,seqlen=40,scale_block=16",
    "op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=64,heads=4,batch=0,seqlen=9",
    "op=attention_kvcache,dtype=bf16,head_dim=64,heads=4/2,batch=3,seqlen_q=8,seqlen_kv=16,"
    "packed_q=1,packed_kv=1,num_pages=40",
};

class RandomOperands {
 public:
  explicit RandomOperands(const Problem& problem, uint64_t seed) : random_(seed) {
    made_ = contiguous_operands(problem, address(1), address(2), address(3), address(4), nullptr);
    for (const OperandSpec& x : operands_of(problem))
      if (kind_of(x.role) == OperandKind::kFactors && (!x.optional || chance(4)))
        made_.*factors_of(x.role) = {reinterpret_cast<float*>(address(5)), x.heads * x.blocks(),
                                     x.blocks(), 1, x.heads_per_factor};
    if (chance(2)) made_.lse = reinterpret_cast<float*>(address(6));
  }

  // Returns operands with one or two random changes.
  Operands changed() {
    for (int left = 1 + number(2); left > 0; --left) {
      const int what = number(12);
      if (what < 7)
        change_tensor(&(made_.*tensor_of(kTensorRoles[number(4)])));
      else if (what < 10)
        change_factors(&(made_.*factors_of(kFactorRoles[number(4)].role)));
      else
        change_row_sums();
    }
    return made_;
  }

 private:
  int number(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  bool chance(int of) { return number(of) == 0; }
  static char* address(int page) { return reinterpret_cast<char*>(uintptr_t{4096} * page); }

  int64_t stride(int64_t now) {
    const int64_t values[] = {0,
                              -16,
                              1,
                              8,
                              16,
                              24,
                              now - 1,
                              now,
                              now + 8,
                              2 * now,
                              now / 2,
                              5 * 64,
                              64,
                              4 * 64,
                              7,
                              48,
                              int64_t{1} << 37,
                              (int64_t{1} << 39) - 16,
                              int64_t{1} << 39,
                              int64_t{1} << 57,
                              INT64_MAX / 16,
                              INT64_MAX,
                              INT64_MIN};
    return values[number(static_cast<int>(std::size(values)))];
  }
  void change_tensor(OperandView* view) {
    long long* const strides[] = {&view->batch_stride, &view->row_stride, &view->head_stride};
    if (chance(6))
      view->data = chance(2) ? nullptr : static_cast<char*>(view->data) + 4 * (1 + number(4));
    else if (chance(5))
      std::swap(view->row_stride, view->head_stride);
    else if (long long& one = *strides[number(3)]; true)
      one = stride(one);
  }
  void change_factors(ScaleView* view) {
    long long* const strides[] = {&view->batch_stride, &view->head_stride, &view->block_stride};
    if (chance(4))
      view->data = chance(2) ? nullptr : reinterpret_cast<float*>(address(5) + number(8));
    else if (chance(3))
      view->heads_per_scale = number(6) - 1;
    else if (long long& one = *strides[number(3)]; true)
      one = stride(one);
  }
  void change_row_sums() {
    if (chance(4))
      made_.lse = chance(2) ? nullptr : reinterpret_cast<float*>(address(6) + number(8));
    else
      (chance(2) ? made_.lse_batch_stride : made_.lse_head_stride) = stride(20);
    if (chance(2)) made_.lse_head_stride = 5, made_.lse_batch_stride = chance(2) ? 20 : 15;
  }

  std::mt19937_64 random_;
  Operands made_;
};

std::string refusal_of(const OperandList& list, const Operands& operands) {
  try {
    check_operands(list, operands);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OperandRules, AgreeWithTheChecks) {
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    const OperandList list = operands_of(problem);
    const OperandRules rules(list);
    int allowed = 0, refused = 0, unsuited = 0;
    for (uint64_t seed = 0; seed < 5000; ++seed) {
      const Operands operands = RandomOperands(problem, seed).changed();
      const std::string refusal = refusal_of(list, operands);
      ASSERT_EQ(rules.allow(operands), refusal.empty())
          << text << ", seed " << seed << ": " << refusal;
      ++(refusal.empty() ? allowed : refused);
      if (!refusal.empty()) continue;
      const auto reason = tensor_map_refusal(list, operands);
      ASSERT_EQ(rules.suit_tensor_maps(operands), !reason.has_value())
          << text << ", seed " << seed << ": " << reason.value_or("");
      unsuited += reason.has_value();
    }
    EXPECT_GT(allowed, 300) << text;
    EXPECT_GT(refused, 300) << text;
    if (!rules.writes_nothing()) {
      EXPECT_GT(unsuited, 5) << text;
    }
  }
}

TEST(OperandRules, KnowIfThereAreOutputElements) {
  const auto writes_nothing = [](const char* text) {
    return OperandRules(operands_of(parse_problem(text))).writes_nothing();
  };
  EXPECT_TRUE(writes_nothing("dtype=fp16,head_dim=64,heads=4,seqlen_q=0,seqlen_kv=7"));
  EXPECT_FALSE(writes_nothing("dtype=fp16,head_dim=64,heads=4,seqlen_q=7,seqlen_kv=0"));
}

TEST(OperandRules, EmptyRulesAllowNothing) { EXPECT_FALSE(OperandRules().allow(Operands{})); }

}  // namespace
}  // namespace attune
