// SPDX-License-Identifier: Apache-2.0
// Checks the tests' own oracle against cases computed by hand and against laws of attention.
#include "tuner/fuzz/attention_case.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attune::testing {
namespace {

AttentionCase make(const std::string& text, Layout layout = Layout::kContiguous,
                   Inputs inputs = Inputs::kNormal) {
  return AttentionCase(parse_problem(text), layout, inputs, 7);
}

TEST(Oracle, OneKeyGivesItsValue) {
  const AttentionCase c = make("dtype=fp32,head_dim=16,heads=2,seqlen_q=3,seqlen_kv=1");
  const AttentionResult r = c.oracle();
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t head = 0; head < 2; ++head)
      for (int64_t i = 0; i < 16; ++i)
        EXPECT_DOUBLE_EQ(r.o[static_cast<size_t>((row * 2 + head) * 16 + i)],
                         c.v.at(0, 0, head, i));
}

TEST(Oracle, EqualScoresGiveTheMean) {
  AttentionCase c = make("dtype=fp32,head_dim=16,heads=1,seqlen_q=1,seqlen_kv=5");
  std::fill(c.q.bytes.begin(), c.q.bytes.end(), std::byte{0});
  const AttentionResult r = c.oracle();
  double mean = 0;
  for (int64_t j = 0; j < 5; ++j) mean += c.v.at(0, j, 0, 3) / 5;
  EXPECT_NEAR(r.o[3], mean, 1e-12);
  EXPECT_NEAR(r.lse[0], std::log(5.0), 1e-12);
}

TEST(Oracle, RowsWithNothingToSeeAreZeroWithMinusInfinity) {
  const AttentionResult r =
      make("dtype=fp32,head_dim=16,heads=1,seqlen_q=4,seqlen_kv=2,mask=causal_bottom_right")
          .oracle();
  for (size_t row : {0, 1}) {
    EXPECT_EQ(r.lse[row], -std::numeric_limits<double>::infinity());
    EXPECT_EQ(r.o[row * 16], 0);
  }
  EXPECT_TRUE(std::isfinite(r.lse[2]));
}

TEST(Oracle, LayoutsAgree) {
  const std::string text =
      "dtype=bf16,head_dim_qk=24,head_dim_v=16,heads=4/"
      "2,batch=2,seqlen_q=5,seqlen_kv=9,mask=causal_bottom_right,window=3:-";
  const AttentionResult a = make(text).oracle();
  EXPECT_EQ(a.o, make(text, Layout::kHeadsFirst).oracle().o);
  EXPECT_EQ(a.o, make(text, Layout::kPadded).oracle().o);
}

TEST(Verdict, SeesOneWrongElementAndAMissingRow) {
  const AttentionCase c = make("dtype=bf16,head_dim=32,heads=2,seqlen=40");
  AttentionResult good = c.twin();
  good.lse = c.oracle().lse;
  EXPECT_EQ(verdict(c, good), "");
  AttentionResult wrong = good;
  wrong.o[77] += 0.05;
  EXPECT_NE(verdict(c, wrong), "");
  AttentionResult poisoned = good;
  poisoned.o[3] = std::nan("");
  EXPECT_NE(verdict(c, poisoned), "");
  AttentionResult log2_lse = good;
  for (double& value : log2_lse.lse) value *= 1.4426950408889634;
  EXPECT_NE(verdict(c, log2_lse), "");
}

TEST(Verdict, PooledErrorsCoverBothCases) {
  const AttentionCase c = make("dtype=bf16,head_dim=32,heads=2,seqlen=40");
  const AttentionResult oracle = c.oracle();
  AttentionResult wrong = c.twin();
  const Errors good = compare(wrong, oracle);
  wrong.o[77] += 0.05;
  const Errors both = pooled(good, compare(wrong, oracle));
  EXPECT_EQ(both.count, 2 * good.count);
  EXPECT_EQ(both.max, compare(wrong, oracle).max);
  EXPECT_NEAR(both.mean, (good.mean + compare(wrong, oracle).mean) / 2, 1e-12);
  EXPECT_EQ(verdict(pooled(good, good), good, c.problem), "");
  EXPECT_NE(verdict(both, good, c.problem), "");  // one wrong element still fails
  wrong.o[3] = std::nan("");
  EXPECT_FALSE(pooled(good, compare(wrong, oracle)).finite);
}

TEST(RoundTo, MatchesTheFormats) {
  EXPECT_EQ(round_to(Dtype::kBf16, 1.00390625), 1.0);       // 1 + 2^-8 ties to even
  EXPECT_EQ(round_to(Dtype::kBf16, 1.01171875), 1.015625);  // 1 + 3 * 2^-8 ties to even
  EXPECT_EQ(round_to(Dtype::kFp16, 65519.0), 65504.0);
  EXPECT_EQ(round_to(Dtype::kFp32, 0.1), static_cast<double>(0.1F));
}

}  // namespace
}  // namespace attune::testing
