// SPDX-License-Identifier: Apache-2.0
// Programs as text: the canonical text gives the program back, digests tell programs apart, and the
// kernel source is the accepted one and compiles with NVRTC.
// tests/templates/scores/score_functions_test.cpp checks its results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/analysis/positions.hpp"
#include "generator/score/language/parse.hpp"
#include "generator/score/language/program.hpp"
#include "generator/score/print/source_text.hpp"
#include "tests/generator/render/golden_text.hpp"
#include "tests/support/score_source.hpp"
#include "tuner/fuzz/random_program.hpp"

namespace attune::score {
namespace {

const Declarations kDeclarations{{{"slopes", CaptureType::kFp32, 1},
                                  {"bias", CaptureType::kBf16, 4},
                                  {"doc", CaptureType::kInt32, 2},
                                  {"buckets", CaptureType::kFp16, 2}},
                                 {{"lo", Type::kInt}, {"hi", Type::kInt}, {"cap", Type::kFloat}}};
constexpr const char* kSoftcap = "return 50 * tanh(score / 50);";
constexpr const char* kAlibi =
    "float slope = slopes[head]; return score - slope * abs(kv_idx - q_idx);";
constexpr const char* kBias = "return score + bias[batch][head][q_idx][kv_idx];";
constexpr const char* kDocuments =
    "return doc[batch][q_idx] == doc[batch][kv_idx] && kv_idx <= q_idx;";
constexpr const char* kBuckets =
    "return score + buckets[head][clamp(kv_idx - q_idx, lo, hi) - lo];";
constexpr const char* kDivisors = "return score / cap / slopes[head] / (1 + score);";
constexpr const char* kShared =
    "float far = exp(slopes[head] * lo); int d = kv_idx - q_idx; return d * d * far + tanh(score * "
    "(q_idx / hi) * far) * (kv_idx % 3 == 1 ? far : 2);";

Program score(std::string_view text) {
  return parse(text, Kind::kScore, kDeclarations, "score_mod");
}
Program mask(std::string_view text) { return parse(text, Kind::kMask, kDeclarations, "mask_mod"); }

Program parsed(const RandomProgram& random) {
  return parse(random.text, random.kind, random.declarations, "random");
}

Program again(const Program& program) {
  return parse(canonical_text(program), program.kind(), {program.captures(), program.scalars()},
               "again");
}

TEST(ScoreText, CanonicalTextGivesTheProgramBack) {
  EXPECT_TRUE(rc::check([](uint64_t seed, bool is_mask) {
    const Program program = parsed(random_program(seed, is_mask ? Kind::kMask : Kind::kScore));
    RC_ASSERT(again(program) == program);
    RC_ASSERT(canonical_text(again(program)) == canonical_text(program));
    RC_ASSERT(digest(again(program)) == digest(program));
  }));
}

TEST(ScoreText, DeepAndSharedProgramsComeBack) {
  std::string text = "float a0 = score;\n";
  for (int i = 0; i < 900; ++i) {
    const std::string last = "a" + std::to_string(i);
    text += "float a" + std::to_string(i + 1) + " = " +
            (i % 3 == 0 ? last + " * (" + last + " - cap)" : "tanh(-" + last + ")") + ";\n";
  }
  const Program program = score(text + "return a900;");
  EXPECT_EQ(again(program), program);
  std::string nested;
  for (int i = 0; i < 180; ++i) nested += "(1 - ";
  const Program deep = score("return " + nested + "score" + std::string(180, ')') + ";");
  EXPECT_EQ(again(deep), deep);
  // Names of locals must differ from names of captures and scalars.
  const Declarations taken{{{"v0", CaptureType::kFp32, 0}}, {{"v1", Type::kFloat}}};
  const Program named =
      parse("float a = exp(v0 + v1); return a * a + score;", Kind::kScore, taken, "named");
  EXPECT_EQ(canonical_text(named), "float v2 = exp(v0 + v1);\nreturn v2 * v2 + score;\n");
  EXPECT_EQ(again(named), named);
}

TEST(ScoreText, DigestDependsOnTheMeaningOnly) {
  EXPECT_EQ(digest(score(kAlibi)),
            digest(score("return score - slopes[head] * abs(kv_idx - q_idx); // same")));
  const Declarations renamed{{{"s", CaptureType::kFp32, 1}}, {}};
  EXPECT_EQ(digest(score(kAlibi)), digest(parse("return score - s[head] * abs(kv_idx - q_idx);",
                                                Kind::kScore, renamed, "other")));
  std::set<std::string> digests;
  for (const char* text :
       {kSoftcap, kAlibi, kBias, kBuckets, "return score;", "return score + cap;",
        "return score + lo;", "return 1;", "return 1.5;", "return score - 1;", "return 1 - score;"})
    EXPECT_TRUE(digests.insert(digest(score(text))).second) << text;
  const Declarations narrow{{{"slopes", CaptureType::kBf16, 1}}, {}};
  EXPECT_TRUE(digests.insert(digest(parse(kAlibi, Kind::kScore, narrow, "other"))).second);
  EXPECT_TRUE(digests.insert(digest(mask("return true;"))).second);
  // Digests are stored. A change of the language, of nodes or of their numbers changes this digest,
  // and must raise kLanguageVersion.
  EXPECT_EQ(digest(score(kAlibi)), "308cf0fda146e0ed914f79fb7aeecc74");
}

// ---- the source of kernels

// Compares with the digests in tests/golden/score_programs.txt; ATTUNE_ACCEPT_GOLDEN=1 rewrites it.
TEST(ScoreSource, Golden) {
  testing::GoldenDigests digests(ATTUNE_GOLDEN_DIR "/score_programs.txt", ATTUNE_GOLDEN_KEPT);
  const std::pair<const char*, Program> kCases[] = {
      {kSoftcap, score(kSoftcap)},    {kAlibi, score(kAlibi)},     {kBias, score(kBias)},
      {kDocuments, mask(kDocuments)}, {kBuckets, score(kBuckets)}, {kDivisors, score(kDivisors)},
      {kShared, score(kShared)}};
  const auto expect_accepted = [&](const std::string& name, const std::string& text) {
    const std::string difference = digests.difference(name, text);
    EXPECT_TRUE(difference.empty()) << difference;
  };
  for (const auto& [snippet, program] : kCases) expect_accepted(snippet, source_text(program));
  for (const char* snippet : {kSoftcap, kAlibi, kBias, kBuckets})
    expect_accepted("in steps: " + std::string(snippet), step_text(score(snippet)));
  EXPECT_EQ(digests.finish(), std::set<std::string>());
}

TEST(ScoreSource, KeepsCostlyValuesInLocals) {
  const auto head_row_column = [](std::string_view text) {
    const std::string source = source_text(score(text));
    return source.substr(0, source.find("\n\n"));
  };
  EXPECT_EQ(
      head_row_column("return score * cap + (q_idx + 3) * (kv_idx - lo) * (head + 1) * seqlen_q;"),
      "struct ScoreHead {};\nstruct ScoreRow {};\nstruct ScoreColumn {};");
  EXPECT_EQ(
      head_row_column(
          "return score * exp(cap * head) + slopes[q_idx] * tanh(cap * kv_idx) + q_idx % lo;"),
      "struct ScoreHead { float v0; };\nstruct ScoreRow { float v1; float v2; };\nstruct "
      "ScoreColumn { float v3; };");
}

// Loads that run along keys for all rows are staged in shared memory. Loads that are equal for all
// rows, or that move in another way, are not.
TEST(ScoreSource, PanelsStageLoadsAlongKeys) {
  const auto stages = [](std::string_view text) {
    return panel_text(score(text)).find("kScoreHasLines = true") != std::string::npos;
  };
  EXPECT_TRUE(stages("return score + bias[batch][head][q_idx][kv_idx];"));
  EXPECT_TRUE(stages("return score + slopes[kv_idx - q_idx + 7];"));
  EXPECT_FALSE(stages("return score + slopes[kv_idx];"));
  EXPECT_FALSE(stages("return score + slopes[q_idx - kv_idx];"));
  EXPECT_FALSE(stages("return score + slopes[2 * kv_idx + q_idx];"));
  EXPECT_FALSE(stages(kAlibi));
  EXPECT_NE(
      mask_panel_text(mask("return bias[0][0][q_idx][kv_idx] > 0;")).find("kMaskHasLines = true"),
      std::string::npos);
}

// Finds sums of the score and a term that depends only on the head and the distance of key and row.
TEST(ScoreSource, FindsTermsThatAreAddedAlongDiagonals) {
  const auto adds = [](std::string_view text) { return adds_along_diagonals(score(text)); };
  for (const char* text :
       {kAlibi, kBuckets, "return slopes[head] * (q_idx - kv_idx) + score;", "return score + cap;",
        "return score - tanh(slopes[kv_head] * float(kv_idx - q_idx + 3)) + slopes[batch];",
        "return -(slopes[abs(q_idx - kv_idx)] - score);",
        "return score + (kv_idx - q_idx > lo ? cap : slopes[head] * (kv_idx - q_idx));"})
    EXPECT_TRUE(adds(text)) << text;
  for (const char* text :
       {kSoftcap, kBias, kDivisors, kShared, "return cap * (kv_idx - q_idx);",
        "return score + slopes[kv_idx];", "return score + slopes[q_idx];",
        "return score + cap * (kv_idx + q_idx);", "return score + cap * (2 * kv_idx - q_idx);",
        "return score + score + cap * (kv_idx - q_idx);", "return score - score + cap;",
        "return score * (kv_idx - q_idx);", "return cap - score;",
        "return score + cap * (kv_idx / 2 - q_idx / 2);",
        "return kv_idx > q_idx ? score : score + cap;"})
    EXPECT_FALSE(adds(text)) << text;
}

TEST(ScoreDivisors, BlocksDivideEachDivisorOfAProgram) {
  const auto blocks = [](std::string_view text) {
    const Blocks of = blocks_of(mask(text));
    return std::pair(of.rows, of.keys);
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_EQ(blocks("return doc[q_idx / 128][kv_idx / 64] != 0;"), Pair(128, 64));
  EXPECT_EQ(blocks("return doc[q_idx >> 7][floordiv(kv_idx + hi, 96)] != 0;"), Pair(128, 96));
  EXPECT_EQ(blocks("return q_idx / 96 == kv_idx / 256 && doc[0][kv_idx / 192] > 0;"), Pair(96, 64));
  EXPECT_EQ(blocks("return (kv_idx - q_idx) / 128 == 0;"), Pair(0, 0));  // no blocks
  EXPECT_EQ(blocks("return q_idx / lo == kv_idx / lo;"), Pair(0, 0));    // not a constant
  EXPECT_EQ(blocks("return head / 4 == 0;"), Pair(0, 0));
  EXPECT_EQ(blocks(kDocuments), Pair(0, 0));
}

std::vector<Program> programs_to_compile() {
  std::vector<Program> programs{score(kSoftcap), score(kAlibi), score(kBias), mask(kDocuments),
                                score(kBuckets)};
  for (uint64_t seed = 0; seed < 200; ++seed)
    programs.push_back(parsed(
        random_program(seed, seed % 4 == 3 ? Kind::kMask : Kind::kScore, seed % 8 == 0 ? 6 : 4)));
  return programs;
}

TEST(ScoreSource, CompilesWithNvrtc) {
  const Compiler* nvrtc = open_nvrtc_compiler();
  if (nvrtc == nullptr) GTEST_SKIP() << nvrtc_advice();
  const std::vector<Program> programs = programs_to_compile();
  for (size_t first = 0; first < programs.size(); first += kProgramsInOneKernel) {
    const size_t count = std::min(kProgramsInOneKernel, programs.size() - first);
    const auto some = std::span(programs).subspan(first, count);
    for (const JobForm form : {JobForm::kWhole, JobForm::kSteps})
      EXPECT_NO_THROW(nvrtc->compile({score_job_source(true, some, form), "score_programs.cu"},
                                     parse_arch("sm_90a")));
  }
}

}  // namespace
}  // namespace attune::score
