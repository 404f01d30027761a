// SPDX-License-Identifier: Apache-2.0
// Score features: their effect on a score, their captures, their order. Every attention family
// renders them, and plain kernels hold none of their code.
#include "generator/score/features/score_feature.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <numeric>

#include "generator/core/problem/problem_fields.hpp"
#include "generator/core/system/error.hpp"
#include "generator/render/renderer.hpp"
#include "generator/score/features/score_operands.hpp"
#include "generator/score/language/evaluate.hpp"
#include "generator/score/language/program.hpp"
#include "generator/score/language/user_program.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr const char* kBase = "dtype=bf16,head_dim=64,heads=4/2,batch=2,seqlen_q=30,seqlen_kv=50,";

std::vector<std::string> names_of(const Problem& p) {
  std::vector<std::string> names;
  for (const CaptureSpec& capture : captures_of(p)) names.push_back(capture.name);
  return names;
}

// Returns the features' result for batch 1, head 3, row 10; each capture reads `captured`.
double scored(const std::string& features, double score, int key,
              const std::map<std::string, double>& captured = {}) {
  const Problem p = parse_problem(kBase + features);
  const score::Program program = score_program(p);
  const std::vector<std::string> names = names_of(p);
  score::Loads loads;
  loads.load = [&](int capture, std::span<const int64_t>) {
    return captured.at(names[static_cast<size_t>(capture)]);
  };
  const score::Point at{score, 1, 3, 1, 10, key, 30, 50, 64};
  return score::evaluate(program, at, loads);
}

TEST(ScoreFeatures, EachDoesWhatItsFormulaSays) {
  EXPECT_DOUBLE_EQ(scored("softcap=30", 12, 5), 30 * std::tanh(12.0 / 30));
  EXPECT_DOUBLE_EQ(scored("bias=fp32", 1, 5, {{"bias", 0.25}}), 1.25);
  EXPECT_EQ(scored("bias=bf16", 1, 5, {{"bias", -1.1e30}}), -kInf);
  EXPECT_DOUBLE_EQ(scored("bias=bf16", 1, 5, {{"bias", -9e29}}), -9e29 + 1);
  EXPECT_DOUBLE_EQ(scored("relative_bias=fp16", 1, 5, {{"relative_bias", 2}}), 3);
  EXPECT_DOUBLE_EQ(scored("alibi=1", 1, 5, {{"alibi_slopes", 0.5}}), 1 - 0.5 * (10 + 20 - 5));
  EXPECT_DOUBLE_EQ(scored("alibi=1,mask=causal_top_left", 1, 5, {{"alibi_slopes", 0.5}}),
                   1 - 0.5 * 5);
  EXPECT_EQ(scored("mask_tensor=1", 1, 5, {{"mask_tensor", 0}}), -kInf);
  EXPECT_EQ(scored("mask_tensor=1", 1, 5, {{"mask_tensor", 1}}), 1);
  EXPECT_EQ(scored("key_lengths=1", 1, 5, {{"key_lengths", 5}}), -kInf);
  EXPECT_EQ(scored("key_lengths=1", 1, 5, {{"key_lengths", 6}}), 1);
  EXPECT_EQ(scored("documents=1", 1, 5, {{"documents_q", 7}, {"documents_kv", 8}}), -kInf);
  EXPECT_EQ(scored("documents=1", 1, 5, {{"documents_q", 7}, {"documents_kv", 7}}), 1);
  EXPECT_EQ(scored("prefix=1", 1, 30, {{"prefix", 0}}), 1);  // row 10 ends at key 10 + 20
  EXPECT_EQ(scored("prefix=1", 1, 31, {{"prefix", 31}}), -kInf);
  EXPECT_EQ(scored("prefix=1", 1, 31, {{"prefix", 32}}), 1);
  EXPECT_EQ(scored("chunk=16", 1, 15), -kInf);  // row 10 is at position 30
  EXPECT_EQ(scored("chunk=16", 1, 16), 1);
  EXPECT_EQ(scored("chunk=16,mask=causal_top_left", 1, 15), 1);
  EXPECT_EQ(scored("block_map=hides", 1, 15, {{"block_map", 0}}), -kInf);
  for (const double seen : {1, 3})
    EXPECT_EQ(scored("block_map=hides", 1, 15, {{"block_map", seen}}), 1);
}

TEST(ScoreFeatures, ApplyInTheirOrder) {
  const ProgramDigest doubles =
      add_user_program("return 2 * score;", score::Kind::kScore, {}, "doubles").digest;
  const std::string all = "softcap=5,bias=fp32,score_mod=" + to_text(doubles);
  EXPECT_DOUBLE_EQ(scored(all, 4, 5, {{"bias", 0.5}}), 2 * 5 * std::tanh(4.0 / 5) + 0.5);
  const ScoreFeature* last = nullptr;
  for (const ScoreFeature* feature : score_features()) {
    EXPECT_TRUE(last == nullptr || last->step <= feature->step) << feature->field;
    last = feature;
  }
}

TEST(ScoreFeatures, AMaskHidesWhateverTheScoreIs) {
  const ProgramDigest odd =
      add_user_program("return kv_idx % 2 == 1;", score::Kind::kMask, {}, "odd").digest;
  const std::string with = "softcap=5,mask_mod=" + to_text(odd);
  EXPECT_EQ(scored(with, 1e30, 4), -kInf);
  EXPECT_DOUBLE_EQ(scored(with, 1e30, 5), 5);
}

TEST(ScoreFeatures, CapturesComeInTheProgramsOrderWithTheirExtents) {
  const Problem p = parse_problem(kBase + std::string("alibi=1,bias=bf16,documents=1"));
  EXPECT_THAT(names_of(p), ElementsAre("documents_q", "documents_kv", "bias", "alibi_slopes"));
  const std::vector<CaptureSpec> captures = captures_of(p);
  EXPECT_THAT(captures[2].extents, ElementsAre(2, 4, 30, 50));
  EXPECT_THAT(captures[3].extents, ElementsAre(2, 4));
  EXPECT_EQ(captures[2].type, CaptureType::kBf16);
}

TEST(ScoreFeatures, SinksAreTheLastCaptureAndNeedNoStage) {
  const Problem alone = parse_problem(kBase + std::string("sinks=bf16"));
  EXPECT_THAT(names_of(alone), ElementsAre("sinks"));
  EXPECT_FALSE(is_scored(alone));
  EXPECT_TRUE(has_score_args(alone));
  EXPECT_EQ(sinks_capture(alone), 0);
  const Problem more = parse_problem(kBase + std::string("sinks=bf16,alibi=1"));
  EXPECT_THAT(names_of(more), ElementsAre("alibi_slopes", "sinks"));
  EXPECT_EQ(sinks_capture(more), 1);
}

TEST(ScoreFeatures, AMapIsTheLastCaptureAndASkippingMapChangesNoProgram) {
  const Problem skips =
      parse_problem(kBase + std::string("documents=1,sinks=bf16,block_map=skips"));
  EXPECT_THAT(names_of(skips), ElementsAre("documents_q", "documents_kv", "sinks", "block_map"));
  EXPECT_EQ(map_capture(skips), 3);
  EXPECT_THAT(captures_of(skips)[3].extents, ElementsAre(2, 4, 1, 4));
  EXPECT_EQ(score_program(skips),
            score_program(parse_problem(kBase + std::string("documents=1,sinks=bf16"))));
  EXPECT_TRUE(asks_map(skips) && !hides_by_map(skips));
  const Problem hides = parse_problem(kBase + std::string("block_map=hides"));
  EXPECT_TRUE(asks_map(hides) && hides_by_map(hides));
  // The map does not cover keys that documents hide, so all masks are evaluated.
  EXPECT_FALSE(asks_map(parse_problem(kBase + std::string("documents=1,block_map=hides"))));
}

TEST(ScoreFeatures, TensorsByRowAndKeyAreIndexedFromTheCallsFirstRowAndKey) {
  const Problem p = parse_problem("head_dim=64,heads=1,seqlen_q=3,seqlen_kv=4,bias=fp32");
  const ScoreCaptures wanted = score_captures(p);
  std::vector<float> bias(12);
  std::iota(bias.begin(), bias.end(), 0.0F);
  ScoreOperands operands;
  operands.q_position0 = 100, operands.kv_position0 = 50;
  operands.add({bias.data(), {0, 0, 4, 1}, {}});
  const auto bias_at = [&](int64_t row, int64_t key) {
    const ScoreArgs args = score_args(p, wanted, &operands);
    const std::array<int64_t, 4> by_position{0, 0, 100 + row, 50 + key};
    return score::element_of(CaptureType::kFp32, args.captures[0], by_position);
  };
  EXPECT_EQ(bias_at(0, 0), 0);
  EXPECT_EQ(bias_at(2, 1), 9);
  operands.captures[0].strides[2] = 0;  // repeated
  EXPECT_EQ(bias_at(2, 1), 1);
  // A longer sequence is indexed by position, clamped.
  std::copy_n(std::array<int64_t, 4>{1, 1, 3, 4}.begin(), 4, operands.captures[0].extents);
  EXPECT_EQ(bias_at(0, 0), 3);
}

TEST(ScoreFeatures, MasksReportIfTheyDependOnBatchEntriesAndHeads) {
  const auto masks_of = [](const std::string& features) {
    return mask_dependence(parse_problem(kBase + features));
  };
  const MaskDependence tensor = masks_of("mask_tensor=1,bias=bf16");
  EXPECT_FALSE(tensor.on_batch.directly || tensor.on_head.directly);
  ASSERT_EQ(tensor.on_head.axes.size(), 1U);
  const Problem p = parse_problem(kBase + std::string("mask_tensor=1,bias=bf16"));
  EXPECT_EQ(captures_of(p)[tensor.on_head.axes[0].capture].name, "mask_tensor");
  EXPECT_EQ(tensor.on_head.axes[0].axis, 1U);
  const auto of_program = [&](const char* text) {
    return masks_of("mask_mod=" +
                    to_text(read_user_program(text, score::Kind::kMask, "mask_mod").digest));
  };
  EXPECT_TRUE(of_program("return head + q_idx > kv_idx;").on_head.directly);
  const MaskDependence mixed = of_program(
      "// capture a: int32[1]\n// capture b: int32[2]\nreturn a[b[batch][q_idx]] > kv_idx;");
  EXPECT_FALSE(mixed.on_batch.directly);
  ASSERT_EQ(mixed.on_batch.axes.size(),
            1U);  // a's index does not change along axes over which b repeats
  EXPECT_TRUE(mixed.on_head.axes.empty() && !mixed.on_head.directly);
}

TEST(ScoreFeatures, TwoProgramsMayNameTheirCapturesAlike) {
  const score::Declarations kinds{{{"kinds", CaptureType::kInt32, 2}},
                                  {{"reach", score::Type::kInt}}};
  const ProgramDigest first =
      add_user_program("return score + kinds[batch][kv_idx];", score::Kind::kScore, kinds, "first")
          .digest;
  const ProgramDigest second = add_user_program("return kinds[batch][q_idx] == kv_idx - reach;",
                                                score::Kind::kMask, kinds, "second")
                                   .digest;
  const Problem p =
      parse_problem(kBase + ("score_mod=" + to_text(first) + ",mask_mod=" + to_text(second)));
  EXPECT_THAT(names_of(p), ElementsAre("kinds", "kinds"));
  EXPECT_EQ(captures_of(p)[0].extents.size(), 2U);
  ASSERT_EQ(scalars_of(p).size(), 1U);
  EXPECT_EQ(scalars_of(p)[0].name, "reach");
}

TEST(ScoreFeatures, AProgramTextGivesTheSameProgramAgain) {
  const UserProgram& made = read_user_program(
      "// capture slopes: fp32[1]\n// scalar cap: float\nreturn min(score, cap) * slopes[head];",
      score::Kind::kScore, "made");
  EXPECT_EQ(read_user_program(made.text, score::Kind::kScore, "again").digest, made.digest);
  EXPECT_THROW(user_program(made.digest, score::Kind::kMask, "mask_mod"), Error);
}

TEST(ScoreFeatures, WrongValuesAreRefused) {
  for (const char* text : {"softcap=-1", "softcap=nan", "chunk=-4", "prefix=1,mask=causal_top_left",
                           "alibi=2", "bias=int8", "score_mod=123"})
    EXPECT_THROW(parse_problem(kBase + std::string(text)), Error) << text;
}

// A scored spec has the score stage once; the plain spec's text has nothing of it.
TEST(ScoreFeatures, EveryAttentionFamilyRendersThemAndPlainKernelsHoldNothing) {
  int rendered = 0;
  for (const KernelTemplate* t : all_templates()) {
    if (t->serves().op != Op::kPrefill) continue;
    for (const char* dtype : {"bf16", "fp16", "fp32", "e4m3"})
      for (const char* arch_name : {"cpu:x86-64", "sm_75", "sm_80", "sm_89", "sm_90a"}) {
        const Arch arch = parse_arch(arch_name);
        const auto text_of = [&](const char* features) {
          const KernelSpec spec = spec_of(parse_problem(
              fmt::format("dtype={},head_dim=64,heads=4/2,seqlen=512{}", dtype, features)));
          const Config config =
              t->default_config(spec, arch, {1, 512, 512, 4, 2}, typical_device(arch).facts);
          return render(*t, spec, arch, config).text;
        };
        const KernelSpec plain =
            spec_of(parse_problem(fmt::format("dtype={},head_dim=64,heads=4/2,seqlen=512", dtype)));
        if (t->refuses(plain, arch)) continue;
        EXPECT_THAT(text_of(""), Not(HasSubstr("kScored = true"))) << t->name();
        EXPECT_THAT(text_of(""), Not(HasSubstr("score_element"))) << t->name();
        const std::string scored = text_of(",softcap=30,alibi=1,mask_tensor=1");
        EXPECT_THAT(scored, HasSubstr("float score_element(")) << t->name();
        ++rendered;
      }
  }
  EXPECT_GE(rendered, 12);
}

}  // namespace
}  // namespace attune
