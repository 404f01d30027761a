// SPDX-License-Identifier: Apache-2.0
// The oracle check: results of a correct low-precision kernel pass, small mistakes do not. A slice
// of a problem has the same rows as the whole problem.
#include "tuner/measure/verify.hpp"
#include "generator/core/problem/visibility.hpp"
#include "tuner/oracles/attention_regions.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "generator/core/problem/visibility.hpp"
#include "tuner/fuzz/attention_case.hpp"
#include "tuner/oracles/attention_regions.hpp"

namespace attune {
namespace {

using testing::AttentionCase;
using testing::AttentionResult;

Problem problem(Dtype dtype, int head_dim, int64_t seqlen_q, int64_t seqlen_kv, Mask mask,
                int64_t window_left = -1) {
  Problem p;
  p.dtype_q = p.dtype_kv = p.dtype_o = dtype;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.batch = 2;
  p.seqlen_q = seqlen_q;
  p.seqlen_kv = seqlen_kv;
  p.mask = mask;
  p.window_left = window_left;
  return p;
}

CheckError hold(const Problem& p, const AttentionResult& want, const AttentionResult& got,
                Weights weights = Weights::kAsOperands) {
  Comparison comparison(p, weights);
  const int64_t rows = p.batch * p.seqlen_q * p.num_heads_q;
  std::vector<float> a(static_cast<size_t>(p.head_dim_v)), b(a.size());
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(want.o.begin() + row * p.head_dim_v, p.head_dim_v, a.begin());
    std::copy_n(got.o.begin() + row * p.head_dim_v, p.head_dim_v, b.begin());
    comparison.add_row(a.data(), b.data(), p.head_dim_v, {0, row, 0});
  }
  for (size_t i = 0; i < want.lse.size(); ++i)
    comparison.add_lse(static_cast<float>(want.lse[i]), static_cast<float>(got.lse[i]),
                       {0, static_cast<int64_t>(i), 0});
  return comparison.result();
}

TEST(Verify, RoundingErrorsOfTheSummedTermsAreAllowed) {
  const Problem p = problem(Dtype::kFp32, 4, 1, 1, Mask::kNone);
  const float want[4] = {1e-4F, -2e-4F, 1e-4F, 3e-4F}, got[4] = {1.1e-4F, -2e-4F, 1e-4F, 3e-4F};
  for (const double terms : {0.0, 0.1, 100.0}) {
    Comparison comparison(p);
    comparison.add_row(want, got, 4, {0, 0, 0}, terms);
    EXPECT_EQ(comparison.result().wrong.has_value(), terms < 100) << terms;
  }
}

TEST(Verify, BeyondTheTypesLargestNumberIsInfinity) {
  const float want[4] = {7e4F, -7e4F, 1, 2}, right[4] = {INFINITY, -INFINITY, 1, 2},
              wrong_sign[4] = {INFINITY, INFINITY, 1, 2},
              early[4] = {INFINITY, -INFINITY, INFINITY, 2};
  for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16})
    for (const auto* const got : {right, wrong_sign, early}) {
      Comparison comparison(problem(dtype, 4, 1, 1, Mask::kNone));
      comparison.add_row(want, got, 4, {0, 0, 0});
      EXPECT_EQ(comparison.result().wrong.has_value(), dtype == Dtype::kBf16 || got != right);
    }
}

TEST(Verify, TheLowPrecisionTwinPassesWithTheRoomThatTheHeaderStates) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32}) {
    for (const int head_dim : {64, 128, 256}) {
      for (const Mask mask : {Mask::kNone, Mask::kCausalBottomRight, Mask::kCausalTopLeft}) {
        const Problem p = problem(dtype, head_dim, 60, 120, mask);
        const AttentionCase test_case(p, testing::Layout::kContiguous, testing::Inputs::kNormal, 3);
        const CheckError error = hold(p, test_case.oracle(), test_case.twin());
        EXPECT_FALSE(error.wrong) << to_text(p) << ": " << *error.wrong;
        EXPECT_LT(error.max, 0.9) << to_text(p);
        EXPECT_LT(error.mean, 0.85) << to_text(p);
        if (dtype != Dtype::kFp32) {
          EXPECT_GT(error.mean, 0.55) << to_text(p);
        }
      }
    }
  }
}

TEST(Verify, PLimitsAnOutputWithMoreBits) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
    const Problem p = problem(dtype, 128, 60, 120, Mask::kNone);
    const AttentionCase c(p, testing::Layout::kContiguous, testing::Inputs::kNormal, 3);
    Problem wide = p;
    wide.op = Op::kAttentionKvCache;
    wide.dtype_o = Dtype::kFp32;
    EXPECT_FALSE(hold(wide, c.oracle(), c.twin()).wrong);
    EXPECT_FALSE(hold(wide, c.oracle(), c.twin(), Weights::kFp32).wrong);  // bf16 products of a CPU
    wide.op = Op::kMerge;                                                  // has no P
    EXPECT_TRUE(hold(wide, c.oracle(), c.twin()).wrong);
  }
}

// A row of 1 and -1 whose elements all have the error `units`, in units of bf16.
bool allows_error(const Problem& p, double units, Weights weights) {
  const float error = static_cast<float>(units) * 0x1p-8F, want[2] = {1, -1};
  const float got[2] = {1 + error, -1 + error};
  Comparison comparison(p, weights);
  comparison.add_row(want, got, 2, {0, 0, 0});
  return !comparison.result().wrong;
}

TEST(Verify, KeysThatAreRoundedHaveAnErrorToo) {
  Problem p = problem(Dtype::kBf16, 64, 1, 1, Mask::kNone);
  p.op = Op::kAttentionKvCache;
  p.dtype_kv = Dtype::kE4m3;
  p.cache.kv_factors = KvFactors::kLatent;
  EXPECT_TRUE(allows_error(p, 0.75, Weights::kAsOperands));
  EXPECT_FALSE(allows_error(p, 0.85, Weights::kAsOperands));
  EXPECT_FALSE(allows_error(p, 0.75, Weights::kFp32));
  p.cache.kv_factors = KvFactors::kKeys;
  EXPECT_FALSE(allows_error(p, 0.75, Weights::kAsOperands));
}

TEST(Verify, TheTwinsOfFp32InFewerBitsPass) {
  for (const Accuracy accuracy : {Accuracy::kFast, Accuracy::kSplit})
    for (const int head_dim : {64, 128, 256})
      for (const Mask mask : {Mask::kNone, Mask::kCausalBottomRight}) {
        Problem p = problem(Dtype::kFp32, head_dim, 60, 120, mask);
        p.fp8.accuracy = accuracy;
        const AttentionCase c(p, testing::Layout::kContiguous, testing::Inputs::kNormal, 3);
        const CheckError error = hold(p, c.oracle(), c.twin());
        EXPECT_FALSE(error.wrong) << to_text(p) << ": " << *error.wrong;
        EXPECT_LT(error.max, 0.9) << to_text(p);
        EXPECT_LT(error.mean, 0.85) << to_text(p);
        if (accuracy == Accuracy::kSplit) continue;
        EXPECT_GT(error.mean, 0.5) << to_text(p);
        // Kernels with fp32 arithmetic must meet its limits, whatever accuracy is asked for.
        EXPECT_TRUE(hold(p, c.oracle(), c.twin(), Weights::kFp32).wrong) << to_text(p);
        EXPECT_FALSE(hold(p, c.oracle(), c.twin(testing::Arithmetic::kFp32), Weights::kFp32).wrong)
            << to_text(p);
      }
}

Problem narrow_problem(Accuracy accuracy, int head_dim, int64_t seqlen_q, int64_t seqlen_kv,
                       Mask mask) {
  Problem p = problem(Dtype::kE4m3, head_dim, seqlen_q, seqlen_kv, mask);
  p.dtype_o = Dtype::kBf16;
  p.fp8.accuracy = accuracy;
  return p;
}

// Returns inputs like the tuner's: N(0,1) in 8 bits, a factor between 0.7 and 1.4 for each head.
AttentionCase tuner_case(const Problem& p, uint64_t seed) {
  AttentionCase c(p, testing::Layout::kContiguous, testing::Inputs::kNormal, seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> factor(0.7F, 1.4F);
  std::normal_distribution<float> normal;
  const auto fill = [&](testing::HostOperand& operand, testing::HostScale& scale, int64_t rows,
                        int heads, int dim) {
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t row = 0; row < rows; ++row)
        for (int head = 0; head < heads; ++head)
          for (int i = 0; i < dim; ++i) operand.set(b, row, head, i, normal(random));
    scale = {std::vector<float>(static_cast<size_t>(p.batch * heads)), heads, 1, 0, 1, 0};
    for (float& value : scale.values) value = factor(random);
  };
  fill(c.q, c.q_scale, p.seqlen_q, p.num_heads_q, p.head_dim_qk);
  fill(c.k, c.k_scale, p.seqlen_kv, p.num_heads_kv, p.head_dim_qk);
  fill(c.v, c.v_scale, p.seqlen_kv, p.num_heads_kv, p.head_dim_v);
  return c;
}

class VerifyNarrow : public ::testing::TestWithParam<Accuracy> {};
INSTANTIATE_TEST_SUITE_P(Modes, VerifyNarrow,
                         ::testing::Values(Accuracy::kAccurate, Accuracy::kFast));

TEST_P(VerifyNarrow, TheTwinPassesWithTheRoomThatTheHeaderStates) {
  for (const auto& [head_dim, keys] : {std::pair{64, 120}, {128, 120}, {128, 700}, {256, 120}})
    for (const Mask mask : {Mask::kNone, Mask::kCausalBottomRight, Mask::kCausalTopLeft}) {
      const Problem p = narrow_problem(GetParam(), head_dim, 60, keys, mask);
      const AttentionCase c = tuner_case(p, 3);
      const CheckError error = hold(p, c.oracle(), c.twin());
      EXPECT_FALSE(error.wrong) << to_text(p) << ": " << *error.wrong;
      EXPECT_LT(error.max, 0.9) << to_text(p);
      EXPECT_LT(error.mean, 0.9) << to_text(p);
      EXPECT_GT(error.mean, 0.35) << to_text(p);
    }
}

TEST_P(VerifyNarrow, MistakesAreFound) {
  const Problem p = narrow_problem(GetParam(), 64, 40, 4096, Mask::kNone);
  const AttentionCase c = tuner_case(p, 5);
  const AttentionResult want = c.oracle();
  ASSERT_FALSE(hold(p, want, c.twin()).wrong);
  AttentionCase left_out = c;
  left_out.problem.seqlen_kv -= 1;
  EXPECT_TRUE(hold(p, want, left_out.twin()).wrong);
  for (testing::HostScale AttentionCase::*scale :
       {&AttentionCase::q_scale, &AttentionCase::k_scale, &AttentionCase::v_scale}) {
    AttentionCase other = c;
    (other.*scale).head_stride = 0;  // uses the first head's factor for all
    EXPECT_TRUE(hold(p, want, other.twin()).wrong);
  }
  AttentionResult scaled = c.twin();
  for (double& value : scaled.o) value *= GetParam() == Accuracy::kFast ? 1.1 : 1.05;
  EXPECT_TRUE(hold(p, want, scaled).wrong);
  AttentionResult poisoned = c.twin();
  poisoned.o[77] = NAN;
  EXPECT_TRUE(hold(p, want, poisoned).wrong);
  AttentionResult lse = c.twin();
  lse.lse[3] += 0.05;
  EXPECT_TRUE(hold(p, want, lse).wrong);
}

// P is fp32 here: an error that only narrow P explains is wrong.
TEST_P(VerifyNarrow, OnCpusOnlyTheRoundingOfOIsAllowed) {
  for (const Dtype dtype_o : {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32})
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      Problem p = narrow_problem(GetParam(), seed % 2 == 0 ? 64 : 128, 20, 300,
                                 seed % 3 == 0 ? Mask::kCausalBottomRight : Mask::kNone);
      p.dtype_o = dtype_o;
      const AttentionCase c = tuner_case(p, seed);
      const AttentionResult want = c.oracle(), good = c.twin(testing::Arithmetic::kFp32);
      const CheckError error = hold(p, want, good, Weights::kFp32);
      EXPECT_FALSE(error.wrong) << to_text(p) << ": " << *error.wrong;
      EXPECT_LT(error.max, 0.8) << to_text(p) << " seed " << seed;
      EXPECT_LT(error.mean, 0.8) << to_text(p) << " seed " << seed;
      EXPECT_TRUE(hold(p, want, c.twin(), Weights::kFp32).wrong) << "P in e4m3";
      AttentionCase left_out = c;
      left_out.problem.seqlen_kv -= 1;
      if (p.mask == Mask::kNone) {
        EXPECT_TRUE(hold(p, want, left_out.twin(testing::Arithmetic::kFp32), Weights::kFp32).wrong);
      }
      AttentionResult scaled = good;
      for (double& value : scaled.o) value *= 1.01;
      EXPECT_TRUE(hold(p, want, scaled, Weights::kFp32).wrong);
      LossComparison loss;
      loss.add(want.o.data(), good.o.data(), good.o.size(), 20);
      EXPECT_EQ(loss.wrong(p, Weights::kFp32).value_or(""), "");
      LossComparison lost;
      lost.add(want.o.data(), scaled.o.data(), scaled.o.size(), 20);
      EXPECT_TRUE(lost.wrong(p, Weights::kFp32));
      EXPECT_FALSE(lost.wrong(p));
    }
}

TEST_P(VerifyNarrow, LostSumsAreFoundWhereVHasAMean) {
  const bool fast = GetParam() == Accuracy::kFast;
  const Problem p = narrow_problem(GetParam(), 32, 16, 4096, Mask::kNone);
  const AttentionCase c(p, testing::Layout::kContiguous, testing::Inputs::kMeanOfV, 3);
  const AttentionResult want = c.oracle(), twin = c.twin();
  const auto wrong = [&](double kept) {
    AttentionResult got = twin;
    for (double& value : got.o) value *= kept;
    LossComparison comparison;
    comparison.add(want.o.data(), got.o.data(), got.o.size(), 128);  // rows
    return comparison.wrong(p).has_value();
  };
  EXPECT_FALSE(wrong(1));
  EXPECT_FALSE(wrong(0.99));       // loss if the accumulator is flushed every 1024 keys
  EXPECT_EQ(wrong(0.977), !fast);  // loss of an H200 for 4096 keys without flushing
  EXPECT_TRUE(wrong(0.8));
  EXPECT_EQ(wrong(1.025), !fast);
  EXPECT_TRUE(wrong(NAN));
}

TEST(Verify, SlicesBeginAtBlocksOfFactors) {
  for (const Mask mask : {Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight})
    for (const int64_t window : {-1, 20})
      for (const auto& [seqlen_q, seqlen_kv] : {std::pair{201, 203}, {200, 90}, {90, 200}}) {
        Problem p = narrow_problem(Accuracy::kFast, 32, seqlen_q, seqlen_kv, mask);
        p.window_left = window;
        p.fp8.scale_block_q = 48;
        const CheckPlan plan = check_plan(p, 4e5);
        EXPECT_EQ(plan.spec.fp8.scale_block_q, kSliceRows);
        ASSERT_EQ(plan.regions.size(), 3U) << to_text(p);
        for (const CheckRegion& region : plan.regions) {
          EXPECT_EQ(region.row_begin % kSliceRows, 0) << to_text(p);
          EXPECT_LE(region.row_end, p.seqlen_q) << to_text(p);
          EXPECT_GT(region.row_end, region.row_begin) << to_text(p);
          validate(region_problem(p, plan, region));
        }
      }
}

TEST(Verify, EmptyRowsMustBeZero) {
  const Problem p =
      problem(Dtype::kBf16, 64, 40, 20, Mask::kCausalBottomRight);  // the first 20 rows see nothing
  const AttentionCase test_case(p, testing::Layout::kContiguous, testing::Inputs::kNormal, 3);
  AttentionResult got = test_case.twin();
  EXPECT_FALSE(hold(p, test_case.oracle(), got).wrong);
  got.o[5] = 0.001;
  EXPECT_TRUE(hold(p, test_case.oracle(), got).wrong);
}

TEST(Verify, SmallMistakesAreFound) {
  const Problem p = problem(Dtype::kBf16, 128, 64, 1024, Mask::kNone);
  const AttentionCase test_case(p, testing::Layout::kContiguous, testing::Inputs::kNormal, 5);
  const AttentionResult want = test_case.oracle();
  const AttentionResult good = test_case.twin();
  ASSERT_FALSE(hold(p, want, good).wrong);

  Problem shorter = p;  // without the last of 1024 keys: same inputs, one row less
  shorter.seqlen_kv = 1023;
  AttentionCase left_out = test_case;
  left_out.problem = shorter;
  EXPECT_TRUE(hold(p, want, left_out.twin()).wrong);

  AttentionResult scaled = good;  // half a per cent off everywhere, like a wrong sum
  for (double& value : scaled.o) value *= 1.005;
  EXPECT_TRUE(hold(p, want, scaled).wrong);

  AttentionResult poisoned = good;
  poisoned.o[77] = NAN;
  const CheckError error = hold(p, want, poisoned);
  ASSERT_TRUE(error.wrong);
  EXPECT_NE(error.wrong->find("element 77"), std::string::npos) << *error.wrong;

  AttentionResult swapped = good;  // two rows exchanged
  std::swap_ranges(swapped.o.begin(), swapped.o.begin() + 128, swapped.o.begin() + 128);
  EXPECT_TRUE(hold(p, want, swapped).wrong);

  AttentionResult lse = good;
  lse.lse[3] += 0.05;
  EXPECT_TRUE(hold(p, want, lse).wrong);
}

// Compares rows of a slice, as the reference kernel would compute them, with the same rows of the
// whole problem.
void expect_slices_agree(const Problem& p) {
  const AttentionCase whole(p, testing::Layout::kContiguous, testing::Inputs::kNormal, 9);
  const AttentionResult want = whole.oracle();
  const CheckPlan plan = check_plan(p, 4e5);
  ASSERT_EQ(plan.regions.size(), 3U) << to_text(p);
  for (const CheckRegion& region : plan.regions) {
    ASSERT_GE(region.row_begin, 0);
    ASSERT_LE(region.row_end, p.seqlen_q);
    AttentionCase part = whole;
    part.problem = region_problem(p, plan, region);
    part.problem.dtype_o = p.dtype_o;
    const int ratio = p.num_heads_q / p.num_heads_kv;
    const auto skip = [&](testing::HostOperand& operand, int64_t row, int64_t head) {
      const int64_t elements = region.batch_begin * operand.batch_stride +
                               row * operand.row_stride + head * operand.head_stride;
      operand.bytes.erase(operand.bytes.begin(),
                          operand.bytes.begin() + elements * dtype_bytes(operand.dtype));
    };
    skip(part.q, region.row_begin, region.kv_head_begin * ratio);
    skip(part.k, 0, region.kv_head_begin);
    skip(part.v, 0, region.kv_head_begin);
    const AttentionResult got = part.oracle();
    const int64_t rows = region.row_end - region.row_begin, heads = part.problem.num_heads_q,
                  dim = p.head_dim_v;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < dim; ++i) {
          const int64_t at =
              ((region.batch_begin * p.seqlen_q + region.row_begin + r) * p.num_heads_q +
               region.kv_head_begin * ratio + h) *
                  dim +
              i;
          ASSERT_NEAR(got.o[static_cast<size_t>((r * heads + h) * dim + i)],
                      want.o[static_cast<size_t>(at)], 1e-12)
              << to_text(p) << " row " << region.row_begin + r;
        }
  }
}

TEST(Verify, SlicesKeepTheRowsOfTheWholeProblem) {
  for (const Mask mask : {Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight})
    for (const int64_t window : {-1, 20})
      for (const auto& [seqlen_q, seqlen_kv] :
           {std::pair{200, 200}, {200, 90}, {90, 200}, {201, 77}})
        expect_slices_agree(problem(Dtype::kFp32, 32, seqlen_q, seqlen_kv, mask, window));
  Problem two_sided = problem(Dtype::kFp32, 32, 200, 150, Mask::kNone, 20);
  two_sided.window_right = 9;
  expect_slices_agree(two_sided);
}

TEST(Verify, CheckingStaysWithinItsShare) {
  for (const int64_t seqlen : {512, 4096, 16384, 262144}) {
    Problem p = problem(Dtype::kBf16, 128, seqlen, seqlen, Mask::kCausalBottomRight);
    p.num_heads_q = 64;
    p.num_heads_kv = 8;
    const CheckPlan plan = check_plan(p, 2e10);
    double flops = 0;
    for (const CheckRegion& region : plan.regions)
      flops += visible_flops(region_problem(p, plan, region));
    EXPECT_LE(flops, 2e10) << seqlen;
    EXPECT_GT(flops, 1e8) << seqlen;
  }
}

}  // namespace
}  // namespace attune
