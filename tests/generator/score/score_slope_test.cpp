// SPDX-License-Identifier: Apache-2.0
// The slope of a score program against difference quotients, and against slopes computed by hand.
#include "generator/score/analysis/rewrites.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "generator/score/features/score_feature.hpp"
#include "generator/score/language/builder.hpp"
#include "generator/score/language/evaluate.hpp"
#include "generator/score/language/parse.hpp"
#include "generator/score/language/program.hpp"
#include "tuner/fuzz/random_program.hpp"

namespace attune::score {
namespace {

Program score(std::string_view text) { return parse(text, Kind::kScore, {}, "score_mod"); }

double value(const Program& program, double at, int kv_idx = 7) {
  return evaluate(program, {.score = at, .q_idx = 10, .kv_idx = kv_idx}, {});
}

constexpr int kMoved = 99;  // the part number of a scalar that no user program declares

// Returns the arguments of `slope`, from those of `program`.
ScoreArgs args_of(const Program& slope, const Program& program, const ScoreArgs& given) {
  ScoreArgs args = given;
  const auto place = [](const Origin& wanted, const std::vector<Origin>& all) {
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].part == wanted.part && all[i].place == wanted.place) return i;
    if (wanted.part != kMoved) ADD_FAILURE() << "a slope reads what its program does not";
    return size_t{0};
  };
  for (size_t i = 0; i < slope.captures().size(); ++i)
    args.captures[i] = given.captures[place(slope.capture_origins()[i], program.capture_origins())];
  for (size_t i = 0; i < slope.scalars().size(); ++i)
    args.scalars[i] = given.scalars[place(slope.scalar_origins()[i], program.scalar_origins())];
  return args;
}

TEST(ScoreSlope, OfEachFunction) {
  struct Row {
    const char* text;
    double at, slope;
  };
  for (const Row& row : {Row{"score", 3, 1},
                         {"2.0f - 3.0f * score", 3, -3},
                         {"score * score / (1.0f + score)", 1, 0.75},
                         {"tanh(score)", 0.5, 1 - std::tanh(0.5) * std::tanh(0.5)},
                         {"sigmoid(score)", 0, 0.25},
                         {"exp(2.0f * score)", 0, 2},
                         {"exp2(score)", 1, 2 * std::log(2.0)},
                         {"log(score)", 4, 0.25},
                         {"log2(score)", 4, 0.25 / std::log(2.0)},
                         {"sqrt(score)", 4, 0.25},
                         {"rsqrt(score)", 4, -0.0625},
                         {"abs(score)", -2, -1},
                         {"abs(score)", 0, 0},
                         {"min(score, 1.0f)", 2, 0},
                         {"min(score, 1.0f)", 0, 1},
                         {"max(score, 1.0f)", 2, 1},
                         {"clamp(score, -1.0f, 1.0f)", 2, 0},
                         {"clamp(score, -1.0f, score * 3.0f)", -0.5, 3},
                         {"clamp(score * 2.0f, -9.0f, score)", 2, 1},
                         {"floor(score) + score", 2.5, 1},
                         {"q_idx > kv_idx ? score * 5.0f : -score", 2, 5},
                         {"kv_idx > 100 ? score : -1e30f", 2, 0}})
    EXPECT_NEAR(value(slope(score(std::string("return ") + row.text + ";")), row.at), row.slope,
                1e-6)
        << row.text;
}

TEST(ScoreSlope, IsOneIfTheProgramOnlyAddsToScores) {
  for (const char* text : {"alibi=1", "bias=bf16,relative_bias=fp32", "documents=1,alibi=1"}) {
    const Problem p =
        parse_problem(std::string("op=backward,dtype=bf16,head_dim=64,heads=2,seqlen=9,") + text);
    EXPECT_FALSE(score_slope_program(p)) << text;
  }
  EXPECT_TRUE(score_slope_program(
      parse_problem("op=backward,dtype=bf16,head_dim=64,heads=2,seqlen=9,softcap=2")));
}

TEST(ScoreSlope, OfASingleLoad) {
  const Declarations declarations{
      {{"table", CaptureType::kFp32, 1}, {"ids", CaptureType::kInt32, 1}}, {}};
  float table[4] = {0.5F, 1.5F, 2.5F, 3.5F};
  int ids[4] = {3, 2, 1, 0};
  ScoreArgs args{};
  args.captures[0] = {table, {1}, {4}};
  args.captures[1] = {ids, {1}, {4}};
  struct Row {
    const char* text;
    std::vector<double> slopes;  // of each load of floats
  };
  for (const Row& row : {Row{"score + table[q_idx]", {1}},
                         {"score * table[1] + 3.0f", {2}},
                         {"table[0] * table[3]", {3.5, 0.5}},
                         {"score + table[2] * table[2]", {5}},
                         {"tanh(score * table[0])", {2 * (1 - std::pow(std::tanh(1.0), 2))}},
                         {"score + table[int(table[1])]", {0, 1}},
                         {"kv_idx > 3 ? score - table[0] : score + table[3]", {-1, 0}}}) {
    const Program program =
        parse(std::string("return ") + row.text + ";", Kind::kScore, declarations, "score_mod");
    const std::vector<int> loads = float_loads(program);
    ASSERT_EQ(loads.size(), row.slopes.size()) << row.text;
    for (size_t i = 0; i < loads.size(); ++i) {
      const Program by_load = slope_of_load(program, loads[i]);
      const ScoreArgs own = args_of(by_load, program, args);
      EXPECT_NEAR(evaluate(by_load, {.score = 2, .q_idx = 1, .kv_idx = 7}, loads_of(by_load, own)),
                  row.slopes[i], 1e-6)
          << row.text << " load " << i;
    }
  }
  const Program by_table =
      parse("return score + table[ids[q_idx]];", Kind::kScore, declarations, "");
  EXPECT_EQ(float_loads(by_table).size(), 1U) << "ids are no floats";
}

// Returns the program with a scalar added to the value of one load.
Program with_moved_load(const Program& program, int node) {
  Builder builder("moved");
  const int by = builder.add_scalar({"moved_by", Type::kFloat}, {kMoved, 0});
  const int root =
      builder.import(program, [&](int there, std::span<const int> operands) -> std::optional<int> {
        if (there != node) return std::nullopt;
        const int capture = program.nodes()[static_cast<size_t>(there)].index;
        return builder.make(Operation::kAdd, Type::kFloat,
                            {builder.load(capture, operands), builder.scalar(by)});
      });
  return builder.finish(root);
}

// Loads are multiples of 1/16, so two loads are often equal. There `min` and `max` have kinks,
// which can hide each other. So the moved scalar starts at a value where nothing is equal by
// chance.
TEST(ScoreSlope, OfALoadIsTheQuotientOfDifferences) {
  int compared = 0;
  EXPECT_TRUE(rc::check([&](uint64_t seed) {
    const RandomProgram random = random_program(seed, Kind::kScore, 6, Calculus::kSteady);
    const Program program = parse(random.text, random.kind, random.declarations, "score_mod");
    const RandomOperands operands(program, seed);
    const std::vector<int> loads = float_loads(program);
    for (size_t place = 0; place < loads.size(); ++place) {
      const Program moved = with_moved_load(program, loads[place]);
      const auto at = [&](const Program& of, double by) {
        const ScoreArgs own = args_of(of, program, operands.args());
        Loads read = loads_of(of, own);
        for (size_t i = 0; i < of.scalars().size(); ++i)
          if (of.scalar_origins()[i].part == kMoved) read.scalars[i] = by;
        return evaluate(of, {.score = 1.1, .q_idx = 10, .kv_idx = 7}, read);
      };
      const double x = 0.0123, step = 1e-6, middle = at(moved, x);
      const double left = (middle - at(moved, x - step)) / step;
      const double right = (at(moved, x + step) - middle) / step;
      if (!std::isfinite(left) || !std::isfinite(right)) continue;
      if (std::fabs(left - right) > 1e-3 * (1 + std::fabs(left))) continue;  // a kink, or a jump
      const double given = at(slope_of_load(moved, float_loads(moved).at(place)), x);
      ++compared;
      RC_ASSERT(std::fabs(given - (left + right) / 2) <= 1e-3 * (1 + std::fabs(given)));
    }
  }));
  EXPECT_GT(compared, 50);
}

TEST(ScoreSlope, IsTheQuotientOfDifferences) {
  int compared = 0;
  EXPECT_TRUE(rc::check([&](uint64_t seed) {
    const RandomProgram random = random_program(seed, Kind::kScore, 6, Calculus::kSteady);
    const Program program = parse(random.text, random.kind, random.declarations, "score_mod");
    const Program by_score = slope(program);
    const RandomOperands operands(program, seed);
    const ScoreArgs of_slope = args_of(by_score, program, operands.args());
    const Loads loads = loads_of(program, operands.args());
    const auto at = [&](double score) {
      return evaluate(program, {.score = score, .q_idx = 10, .kv_idx = 7}, loads);
    };
    const double x = 1.1, step = 1e-6, middle = at(x);
    const double left = (middle - at(x - step)) / step, right = (at(x + step) - middle) / step;
    if (!std::isfinite(left) || !std::isfinite(right)) return;
    if (std::fabs(left - right) > 1e-3 * (1 + std::fabs(left))) return;  // a kink, or a jump
    const double given =
        evaluate(by_score, {.score = x, .q_idx = 10, .kv_idx = 7}, loads_of(by_score, of_slope));
    ++compared;
    RC_ASSERT(std::fabs(given - (left + right) / 2) <= 1e-3 * (1 + std::fabs(given)));
  }));
  EXPECT_GT(compared, 50);
}

}  // namespace
}  // namespace attune::score
