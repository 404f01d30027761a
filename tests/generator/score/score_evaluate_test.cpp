// SPDX-License-Identifier: Apache-2.0
// Meaning of score programs: values at points, loads, composed programs, levels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>

#include "generator/core/system/error.hpp"
#include "generator/score/analysis/dependence.hpp"
#include "generator/score/language/evaluate.hpp"
#include "generator/score/language/parse.hpp"
#include "generator/score/language/program.hpp"
#include "tests/support/score_bound.hpp"
#include "tuner/fuzz/random_program.hpp"

namespace attune::score {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const Declarations kDeclarations{
    {{"f", CaptureType::kFp32, 1}, {"d", CaptureType::kInt64, 2}, {"b", CaptureType::kBool, 0}},
    {{"x", Type::kFloat}, {"n", Type::kInt}, {"on", Type::kBool}}};
const Point kPoint{.score = 1.5,
                   .batch = 2,
                   .head = 6,
                   .kv_head = 3,
                   .q_idx = 10,
                   .kv_idx = 7,
                   .seqlen_q = 20,
                   .seqlen_kv = 30,
                   .head_dim = 64};

Program score(std::string_view text) {
  return parse(text, Kind::kScore, kDeclarations, "score_mod");
}
Program mask(std::string_view text) { return parse(text, Kind::kMask, kDeclarations, "mask_mod"); }

// Returns the program's value at a point. Scalars have values by name; a capture gives 100 times
// its number plus the digits of its indices.
double value(const Program& program, Point point = kPoint) {
  Loads loads;
  for (const Scalar& scalar : program.scalars())
    loads.scalars.push_back(scalar.name == "x" ? 0.25 : scalar.name == "n" ? -7 : 1);
  loads.load = [&](int capture, std::span<const int64_t> indices) {
    double sum = program.captures()[static_cast<size_t>(capture)].name == "d" ? 4294967296.0 : 0;
    for (const int64_t index : indices) sum = sum * 10 + static_cast<double>(index);
    return sum;
  };
  return evaluate(program, point, loads);
}
double value(const char* text) { return value(score(text)); }

TEST(ScoreEvaluate, Expressions) {
  EXPECT_EQ(value("return score * 2 + x;"), 3.25);
  EXPECT_EQ(value("return score * 0.1;"), 1.5 * static_cast<double>(0.1F));  // constants are fp32
  EXPECT_EQ(value("return batch * 100000 + head * 10000 + kv_head * 1000 + q_idx * 10 + kv_idx;"),
            263107);
  EXPECT_EQ(value("return seqlen_q * 10000 + seqlen_kv * 100 + head_dim;"), 203064);
  EXPECT_EQ(value("return 50 * tanh(score / 50);"), 50 * std::tanh(1.5 / 50));
  EXPECT_EQ(value("return on ? -INFINITY : score;"), -kInfinity);
  EXPECT_EQ(value("if (kv_idx > q_idx) return 1; if (head == 6) return 2; return 3;"), 2);
  EXPECT_EQ(value("return sigmoid(score) + exp(score) + log(score) + log2(score) + exp2(score) + "
                  "sqrt(score) + rsqrt(score);"),
            1 / (1 + std::exp(-1.5)) + std::exp(1.5) + std::log(1.5) + std::log2(1.5) +
                std::exp2(1.5) + std::sqrt(1.5) + 1 / std::sqrt(1.5));
  EXPECT_EQ(value(mask("return kv_idx <= q_idx && q_idx - kv_idx < 4;")), 1);
  EXPECT_EQ(value(mask("return kv_idx <= q_idx && q_idx - kv_idx < 3;")), 0);
}

// The parser folds neither n (-7) nor q_idx (10), so these operations are evaluated.
TEST(ScoreEvaluate, IntsBehaveAsInC) {
  EXPECT_EQ(value("return n / 2;"), -3);
  EXPECT_EQ(value("return n % 4;"), -3);
  EXPECT_EQ(value("return floordiv(n, 2);"), -4);
  EXPECT_EQ(value("return floormod(n, 4);"), 1);
  EXPECT_EQ(value("return floordiv(n, -2);"), 3);
  EXPECT_EQ(value("return floormod(n, -4);"), -3);
  EXPECT_EQ(value("return floormod(q_idx, -4);"), -2);
  for (const char* text : {"return n / (q_idx - 10);", "return n % (q_idx - 10);",
                           "return floordiv(n, q_idx - 10);", "return floormod(n, q_idx - 10);"})
    EXPECT_EQ(value(text), 0) << text;
  EXPECT_EQ(value("return n >> 1;"), -4);
  EXPECT_EQ(value("return n << 33;"), -14);  // 33 modulo 32
  EXPECT_EQ(value("return (n & 12) * 10000 + (n ^ 3) * 100 + (n | 64) + ~n;"),
            8 * 10000 + (-7 ^ 3) * 100 + (-7 | 64) + 6);
  EXPECT_EQ(value("return q_idx * 2147483647;"), -10);  // wraps
  EXPECT_EQ(value("return (n - 2147483641) / (q_idx - 11);"), -2147483648.0);
  EXPECT_EQ(value("return abs(n - 2147483641);"), -2147483648.0);
  EXPECT_EQ(value("return int(score * 2e9) + int(-score * 2e9) + int(log(-score));"), -1);
  EXPECT_EQ(value("return int(-score) * 10 + int(n < 0);"), -9);
  EXPECT_EQ(value("return 10 * abs(n) + min(n, 3) + max(n, 3) + clamp(n, -2, 5);"), 64);
  EXPECT_EQ(value("return floor(-score) + abs(-score) + min(score, 1) + max(score, 7) + "
                  "clamp(score, 2, 3);"),
            -2 + 1.5 + 1 + 7 + 2);
}

TEST(ScoreEvaluate, LoadsGetTheIndicesThatWereComputed) {
  EXPECT_EQ(value("return f[n + 1];"), -6);
  EXPECT_EQ(value("return d[2][kv_idx - 3];"), 24);  // the low 32 bits
  EXPECT_EQ(value(mask("return b;")), 0);
}

TEST(ScoreEvaluate, RefusesTooFewOperands) {
  try {
    evaluate(score("return x + f[0];"), kPoint, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("loads.scalars has 0 values; the program reads 1"));
  }
  EXPECT_THROW(evaluate(score("return f[0];"), kPoint, {}), Error);
}

TEST(ScoreEvaluate, ElementsAreClampedAndConverted) {
  const int64_t wide[] = {5, (int64_t{3} << 40) - 1, 7};
  const uint8_t bytes[] = {0, 200, 2};
  const uint16_t halves[] = {0x3f80, 0xc000};
  const auto at = [](CaptureType type, const void* data, int64_t index) {
    const ScoreCapture capture{data, {1, 0, 0, 0}, {type == CaptureType::kBf16 ? 2 : 3, 1, 1, 1}};
    return element_of(type, capture, std::span<const int64_t>(&index, 1));
  };
  EXPECT_EQ(at(CaptureType::kInt64, wide, -4), 5);
  EXPECT_EQ(at(CaptureType::kInt64, wide, 1), -1);
  EXPECT_EQ(at(CaptureType::kInt64, wide, 1000), 7);
  EXPECT_EQ(at(CaptureType::kUint8, bytes, 1), 200);
  EXPECT_EQ(at(CaptureType::kBool, bytes, 2), 1);
  EXPECT_EQ(at(CaptureType::kBf16, halves, 0), 1);
  EXPECT_EQ(at(CaptureType::kFp16, halves, 1), -2);
  const float matrix[] = {0, 1, 2, 3, 4, 5};
  const ScoreCapture view{matrix, {1, 3, 0, 0}, {3, 2, 1, 1}};  // transposed
  const int64_t place[] = {2, 1};
  EXPECT_EQ(element_of(CaptureType::kFp32, view, place), 5);
}

TEST(ScoreCompose, ChainsFeedScores) {
  const Program cap = score("return 30 * tanh(score / 30);"),
                bias = score("return score + f[kv_idx];");
  EXPECT_EQ(chain(cap, bias), score("return 30 * tanh(score / 30) + f[kv_idx];"));
  EXPECT_EQ(chain(identity(), cap), cap);
  EXPECT_EQ(chain(cap, identity()), cap);
  EXPECT_EQ(canonical_text(hide(bias, mask("return b;"))),
            "return b ? score + f[kv_idx] : -INFINITY;\n");
  EXPECT_EQ(canonical_text(both(mask("return on;"), mask("return kv_idx <= q_idx;"))),
            "return on && kv_idx <= q_idx;\n");
  EXPECT_EQ(canonical_text(hide(identity(), mask("return true;"))), "return score;\n");
}

TEST(ScoreCompose, CapturesOfEqualNamesStaySeparate) {
  const Program bias = score("return score + f[kv_idx] * x;");
  const Program twice = chain(bias, bias);
  EXPECT_EQ(canonical_text(twice), "return score + f[kv_idx] * x + f_2[kv_idx] * x_2;\n");
  const Program thrice = chain(twice, bias);
  EXPECT_EQ(thrice.captures()[2].name, "f_3");
  EXPECT_EQ(thrice.parts(), 3);
  EXPECT_EQ(thrice.capture_origins()[2].part, 2);
  EXPECT_EQ(thrice.scalar_origins()[1].part, 1);
  EXPECT_EQ(thrice.scalar_origins()[1].place, 0);
  // Origins count programs, including programs that read nothing.
  EXPECT_EQ(hide(chain(identity(), bias), mask("return d[0][0] == 1;")).capture_origins()[0].part,
            2);
  EXPECT_EQ(hide(chain(identity(), bias), mask("return d[0][0] == 1;")).capture_origins()[0].place,
            1);
}

TEST(ScoreCompose, RefusesTheWrongKindAndTooMuch) {
  EXPECT_THROW(chain(identity(), mask("return on;")), Error);
  EXPECT_THROW(hide(mask("return on;"), mask("return on;")), Error);
  EXPECT_THROW(both(identity(), mask("return on;")), Error);
  Program program = score("return score + f[kv_idx];");
  for (int i = 1; i < kMaxScoreCaptures; ++i)
    program = chain(program, score("return score + f[kv_idx];"));
  EXPECT_EQ(program.captures().size(), size_t{kMaxScoreCaptures});
  EXPECT_THROW(chain(program, score("return score + f[kv_idx];")), Error);
}

TEST(ScoreCompose, MeansWhatItsPartsMean) {
  EXPECT_TRUE(rc::check([](uint64_t seed) {
    const RandomProgram a = random_program(seed), b = random_program(seed + 1),
                        m = random_program(seed + 2, Kind::kMask);
    const Program first = parse(a.text, a.kind, a.declarations, "a");
    const Program second = parse(b.text, b.kind, b.declarations, "b");
    const Program keeps = parse(m.text, m.kind, m.declarations, "m");
    const RandomOperands on_first(first, seed), on_second(second, seed), on_mask(keeps, seed);
    const Program all = hide(chain(first, second), keeps);
    // Operands of the composed program, found by the part that declared them.
    ScoreArgs args = on_first.args();
    const Program* parts[] = {&first, &second, &keeps};
    const RandomOperands* operands[] = {&on_first, &on_second, &on_mask};
    for (size_t i = 0; i < all.captures().size(); ++i) {
      const Origin& from = all.capture_origins()[i];
      const Program& part = *parts[from.part];
      for (size_t j = 0; j < part.captures().size(); ++j)
        if (part.capture_origins()[j].place == from.place)
          args.captures[i] = operands[from.part]->args().captures[j];
    }
    for (size_t i = 0; i < all.scalars().size(); ++i) {
      const Origin& from = all.scalar_origins()[i];
      const Program& part = *parts[from.part];
      for (size_t j = 0; j < part.scalars().size(); ++j)
        if (part.scalar_origins()[j].place == from.place)
          args.scalars[i] = operands[from.part]->args().scalars[j];
    }
    Point point = kPoint;
    const bool is_seen = evaluate(keeps, point, loads_of(keeps, on_mask.args())) != 0;
    const Bound whole =
        bound_of(all, point, loads_of(all, args));  // constants of `first` are fp32 there
    point.score = evaluate(first, point, loads_of(first, on_first.args()));
    const double expected =
        is_seen ? evaluate(second, point, loads_of(second, on_second.args())) : -kInfinity;
    if (!whole.is_certain || std::isnan(expected)) return;
    RC_ASSERT(whole.value == expected || std::fabs(whole.value - expected) <= whole.error);
  }));
}

TEST(ScoreLevel, FollowsWhatIsRead) {
  const auto level = [](const char* text) {
    const Program program = score(text);
    return level_of(program, program.root());
  };
  EXPECT_EQ(level("return x * seqlen_q + head_dim;"), Level::kConstant);
  EXPECT_EQ(level("return f[head];"), Level::kHead);
  EXPECT_EQ(level("return f[kv_head + batch];"), Level::kHead);
  EXPECT_EQ(level("return d[batch][q_idx] + f[head];"), Level::kRow);
  EXPECT_EQ(level("return d[batch][kv_idx] + f[head];"), Level::kColumn);
  EXPECT_EQ(level("return q_idx - kv_idx;"), Level::kElement);
  EXPECT_EQ(level("return score;"), Level::kElement);
  const Program program = score("return score + f[head] * kv_idx;");
  const Dependences head_and_kv = kOnHead | kOnKv;
  EXPECT_THAT(dependences_of(program), ElementsAre(kOnScore, kOnHead, kOnHead, kOnKv, kOnKv,
                                                   head_and_kv, head_and_kv | kOnScore));
}

TEST(ScoreLevel, MayHide) {
  for (const char* text : {"return 50 * tanh(score / 50);", "return score + kv_idx * x;",
                           "return on ? score : exp(score);"})
    EXPECT_FALSE(may_hide(score(text))) << text;
  for (const char* text : {"return on ? score : -INFINITY;", "return score + f[0];",
                           "return score / x;", "return log(score);", "return score / 0.0;"})
    EXPECT_TRUE(may_hide(score(text))) << text;
}

}  // namespace
}  // namespace attune::score
