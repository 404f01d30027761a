// SPDX-License-Identifier: Apache-2.0
// Cases with 8-bit operands: results of a tensor core must pass the verdict, wrong factors and
// missing keys must not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "generator/core/problem/narrow_float.hpp"
#include "tuner/fuzz/attention_case.hpp"

namespace attune::testing {
namespace {

constexpr Inputs kAllInputs[] = {
    Inputs::kNormal,      Inputs::kLogitsTimes16, Inputs::kLogitsTimes64,
    Inputs::kAllNegative, Inputs::kOutlierRow,    Inputs::kOutliers,
    Inputs::kMeanOfV,     Inputs::kSaturated,     Inputs::kSubnormals};

// Returns acc plus the sum of 32 products, each truncated below 2^-13 of the largest.
double tensor_core_step(double acc, const double* a, const double* b, int64_t count) {
  double largest = std::abs(acc);
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(a[i] * b[i]));
  if (largest == 0) return 0;
  const double unit = std::exp2(std::floor(std::log2(largest)) - 13);
  double sum = std::trunc(acc / unit);
  for (int64_t i = 0; i < count; ++i) sum += std::trunc(a[i] * b[i] / unit);
  return sum * unit;
}

double tensor_core_dot(const std::vector<double>& a, const std::vector<double>& b) {
  double acc = 0;
  for (size_t i = 0; i < a.size(); i += 32)
    acc = tensor_core_step(acc, &a[i], &b[i],
                           static_cast<int64_t>(std::min<size_t>(32, a.size() - i)));
  return acc;
}

// Computes a row like a kernel with blocks of `block` keys, without a mask. Multiplies V's factors
// in before P is rounded, and follows the row maximum like prefill_sm90_fp8
// (templates/cuda/prefill_sm90_fp8/fp8_row_max.cuh).
struct Emulated {
  const AttentionCase& c;
  int64_t block;
  bool backward;

  void row(int64_t b, int64_t head, int64_t query, double* o, double* lse) const {
    const Problem& p = c.problem;
    const int64_t kv = head / (p.num_heads_q / p.num_heads_kv);
    const double offset = p.fp8.accuracy == Accuracy::kFast ? 4 : 6;
    double reference = -std::numeric_limits<double>::infinity(), sum = 0, largest_factor = 0;
    for (int64_t j = 0; j < p.seqlen_kv; ++j)
      largest_factor = std::max(largest_factor, c.v_scale.at(b, j, kv));
    std::vector<double> output(static_cast<size_t>(p.head_dim_v), 0.0);
    const int64_t blocks = (p.seqlen_kv + block - 1) / block;
    for (int64_t n = 0; n < blocks; ++n) {
      const int64_t begin = (backward ? blocks - 1 - n : n) * block,
                    end = std::min(begin + block, p.seqlen_kv);
      const std::vector<double> scores = score(b, head, kv, query, begin, end);
      const std::vector<double> ratios = factor_ratios(b, kv, begin, end, largest_factor);
      double highest = -std::numeric_limits<double>::infinity();
      for (size_t j = 0; j < scores.size(); ++j)
        highest = std::max(highest, scores[j] + std::log2(ratios[j]));
      if (offset + highest - reference > growth_limit(sum, offset)) {
        const double decay = std::exp2(reference - highest);
        for (double& value : output) value *= decay;
        sum *= decay;
        reference = highest;
      }
      add(b, kv, begin, scores, ratios, reference, offset, &output, &sum);
    }
    for (size_t i = 0; i < output.size(); ++i)
      o[i] = round_to(p.dtype_o, output[i] * largest_factor / std::exp2(offset) / sum);
    *lse = (reference + std::log2(sum)) * 0.6931471805599453;
  }

  std::vector<double> score(int64_t b, int64_t head, int64_t kv, int64_t query, int64_t begin,
                            int64_t end) const {
    const Problem& p = c.problem;
    std::vector<double> scores, q, k;
    for (int64_t i = 0; i < p.head_dim_qk; ++i) q.push_back(c.q.at(b, query, head, i));
    for (int64_t j = begin; j < end; ++j) {
      k.clear();
      for (int64_t i = 0; i < p.head_dim_qk; ++i) k.push_back(c.k.at(b, j, kv, i));
      scores.push_back(tensor_core_dot(q, k) * c.q_scale.at(b, query, head) *
                       c.k_scale.at(b, j, kv) * p.scale() * 1.4426950408889634);
    }
    return scores;
  }

  // Log2 of P; a thread of a quad has a quarter of the sum.
  double growth_limit(double sum, double offset) const {
    constexpr double kLargest = 8.8;
    if (c.problem.fp8.accuracy == Accuracy::kFast) return kLargest;
    return std::clamp(std::log2(sum / 4 / 8) + offset, offset, kLargest);
  }

  std::vector<double> factor_ratios(int64_t b, int64_t kv, int64_t begin, int64_t end,
                                    double largest_factor) const {
    std::vector<double> ratios;
    for (int64_t j = begin; j < end; ++j)
      ratios.push_back(
          largest_factor > 0 ? std::max(c.v_scale.at(b, j, kv) / largest_factor, 0x1p-40) : 1);
    return ratios;
  }

  void add(int64_t b, int64_t kv, int64_t begin, const std::vector<double>& scores,
           const std::vector<double>& ratios, double reference, double offset,
           std::vector<double>* output, double* sum) const {
    std::vector<double> weights, v(scores.size());
    for (size_t j = 0; j < scores.size(); ++j) {
      const double weight = std::exp2(scores[j] - reference);
      *sum += weight;
      weights.push_back(round_to(Dtype::kE4m3, weight * ratios[j] * std::exp2(offset)));
    }
    for (size_t i = 0; i < output->size(); ++i) {
      for (size_t j = 0; j < v.size(); ++j)
        v[j] = c.v.at(b, begin + static_cast<int64_t>(j), kv, static_cast<int64_t>(i));
      for (size_t j = 0; j < v.size(); j += 32)
        (*output)[i] = tensor_core_step((*output)[i], &weights[j], &v[j],
                                        static_cast<int64_t>(std::min<size_t>(32, v.size() - j)));
    }
  }

  AttentionResult result() const {
    const Problem& p = c.problem;
    AttentionResult r;
    r.o.resize(static_cast<size_t>(p.batch * p.seqlen_q * p.num_heads_q * p.head_dim_v));
    r.lse.resize(static_cast<size_t>(p.batch * p.num_heads_q * p.seqlen_q));
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t head = 0; head < p.num_heads_q; ++head)
        for (int64_t query = 0; query < p.seqlen_q; ++query)
          row(b, head, query,
              &r.o[static_cast<size_t>(((b * p.seqlen_q + query) * p.num_heads_q + head) *
                                       p.head_dim_v)],
              &r.lse[static_cast<size_t>((b * p.num_heads_q + head) * p.seqlen_q + query)]);
    return r;
  }
};

TEST(NarrowCase, ResultsOfATensorCorePassInBothModes) {
  uint64_t seed = 1;
  for (const char* options :
       {"accuracy=accurate", "accuracy=fast,scale_block=16",
        "scale_block=64,dtype_kv=e5m2,dtype_o=fp16", "accuracy=fast,v_layout=transposed"})
    for (const char* shape : {"head_dim=64,heads=2,seqlen_q=3,seqlen_kv=150",
                              "head_dim=256,heads=2/1,seqlen_q=9,seqlen_kv=300",
                              "head_dim=32,heads=1,seqlen_q=1,seqlen_kv=3",
                              "head_dim_qk=24,head_dim_v=40,heads=3,seqlen_q=40,seqlen_kv=70"})
      for (const Inputs inputs : kAllInputs) {
        const Problem p = parse_problem(std::string("dtype=e4m3,") + shape + "," + options);
        const AttentionCase c(p, Layout::kPadded, inputs, ++seed);
        for (const int64_t block : {32, 96})
          EXPECT_EQ(verdict(c, Emulated{c, block, seed % 2 == 0}.result()), "")
              << to_text(p) << " inputs " << static_cast<int>(inputs) << " block " << block;
      }
}

class NarrowMistakes : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Modes, NarrowMistakes, ::testing::Values("accurate", "fast"));

TEST_P(NarrowMistakes, AreFound) {
  const Problem p = parse_problem(
      std::string(
          "dtype=e4m3,head_dim=64,heads=4/2,seqlen_q=80,seqlen_kv=160,scale_block=32,accuracy=") +
      GetParam());
  AttentionCase c(p, Layout::kContiguous, Inputs::kNormal, 3);
  const auto varies = [](const HostScale& scale, int heads) {
    return scale.block_stride != 0 && scale.heads_per_scale < heads;
  };
  for (uint64_t seed = 3; !varies(c.q_scale, p.num_heads_q) || !varies(c.k_scale, p.num_heads_kv) ||
                          !varies(c.v_scale, p.num_heads_kv);
       ++seed)
    c = AttentionCase(p, Layout::kContiguous, Inputs::kNormal, seed);
  ASSERT_EQ(verdict(c, c.twin()), "");

  for (HostScale AttentionCase::*scale :
       {&AttentionCase::q_scale, &AttentionCase::k_scale, &AttentionCase::v_scale}) {
    AttentionCase no_blocks = c, next_head = c, no_factor = c;
    (no_blocks.*scale).block_stride = 0;
    EXPECT_NE(verdict(c, no_blocks.twin()), "");
    (next_head.*scale).head_stride = 0;
    EXPECT_NE(verdict(c, next_head.twin()), "");
    (no_factor.*scale).values.clear();
    EXPECT_NE(verdict(c, no_factor.twin()), "");
  }
  AttentionCase left_out = c;
  left_out.problem.seqlen_kv -= 1;
  EXPECT_NE(verdict(c, left_out.twin()), "");
  AttentionResult wrong = c.twin();
  for (double& value : wrong.lse) value *= 1.4426950408889634;
  EXPECT_NE(verdict(c, wrong), "");
  AttentionResult scaled = c.twin();
  for (double& value : scaled.o) value *= 1.1;
  EXPECT_NE(verdict(c, scaled), "");
  AttentionResult poisoned = c.twin();
  poisoned.o[99] = std::nan("");
  EXPECT_NE(verdict(c, poisoned), "");
}

TEST(NarrowCase, TheFastModeIsNotAccurateEnoughForTheOther) {
  const Problem p = parse_problem("dtype=e4m3,head_dim=64,heads=4,seqlen=100");
  const AttentionCase c(p, Layout::kContiguous, Inputs::kLogitsTimes16, 3);
  AttentionCase fast = c;
  fast.problem.fp8.accuracy = Accuracy::kFast;
  EXPECT_EQ(verdict(c, c.twin()), "");
  EXPECT_EQ(verdict(fast, c.twin()), "");
  EXPECT_NE(verdict(c, fast.twin()), "");
}

TEST(NarrowCase, ResultsWithoutRoundedWeightsAreHeldToFp32) {
  const Problem p = parse_problem("dtype=e4m3,head_dim=64,heads=4,seqlen=100");
  const AttentionCase c(p, Layout::kContiguous, Inputs::kNormal, 3);
  EXPECT_EQ(verdict(c, c.twin(Arithmetic::kFp32), Arithmetic::kFp32), "");
  EXPECT_NE(verdict(c, c.twin(), Arithmetic::kFp32), "");
}

TEST(NarrowCase, LayoutsAndTransposedValuesAgree) {
  const std::string text =
      "dtype=e4m3,dtype_kv=e5m2,head_dim_qk=24,head_dim_v=40,heads=4/"
      "2,batch=2,seqlen_q=5,seqlen_kv=37,scale_block=16";
  const AttentionResult a =
      AttentionCase(parse_problem(text), Layout::kContiguous, Inputs::kNormal, 7).oracle();
  for (const Layout layout : {Layout::kHeadsFirst, Layout::kPadded})
    EXPECT_EQ(a.o, AttentionCase(parse_problem(text), layout, Inputs::kNormal, 7).oracle().o);
  for (const Layout layout : {Layout::kContiguous, Layout::kHeadsFirst, Layout::kPadded}) {
    const AttentionCase turned(parse_problem(text + ",v_layout=transposed"), layout,
                               Inputs::kNormal, 7);
    EXPECT_EQ(a.o, turned.oracle().o);
    EXPECT_EQ(turned.v.row_stride % 16, 0);
    EXPECT_TRUE(std::isnan(load_element(Dtype::kE5m2, turned.v.bytes.data(),
                                        turned.v.index(0, 0, 0, 1) - 1)));  // a gap
  }
}

TEST(NarrowCase, InputsSaturateAndReachSubnormals) {
  const Problem p = parse_problem("dtype=e4m3,head_dim=64,heads=2,seqlen=100,scale_block=32");
  const auto count = [&](Inputs inputs, const auto& holds) {
    int found = 0;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const AttentionCase c(p, Layout::kContiguous, inputs, seed);
      for (int64_t row = 0; row < 100; ++row)
        for (int64_t i = 0; i < 64; ++i) found += holds(std::abs(c.k.at(0, row, 1, i)));
    }
    return found;
  };
  EXPECT_GT(count(Inputs::kSaturated, [](double x) { return x == 448; }), 100);
  EXPECT_GT(count(Inputs::kSubnormals, [](double x) { return x > 0 && x < 0x1p-6; }), 10000);
}

}  // namespace
}  // namespace attune::testing
