// SPDX-License-Identifier: Apache-2.0
// A program that is equivalent to a built-in feature becomes that feature and hides the same keys;
// other programs stay.
#include "generator/score/features/features.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "generator/core/problem/visibility.hpp"
#include "generator/render/renderer.hpp"
#include "generator/score/features/score_feature.hpp"
#include "generator/score/language/evaluate.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

Problem problem(const std::string& more, const std::string& score_mod,
                const std::string& mask_mod) {
  Problem p = parse_problem("head_dim=64,heads=2,batch=1," + more);
  if (!score_mod.empty())
    p.scores.score_mod = read_user_program(score_mod, score::Kind::kScore, "score_mod").digest;
  if (!mask_mod.empty())
    p.scores.mask_mod = read_user_program(mask_mod, score::Kind::kMask, "mask_mod").digest;
  return p;
}

// Returns the row's score after all features; -infinity if any of them hides the key.
double score_at(const Problem& p, int64_t row, int64_t key, double score) {
  if (!visible_keys(p, row).contains(key)) return -INFINITY;
  if (!is_scored(p)) return score;
  const score::Point point{.score = score,
                           .q_idx = static_cast<int32_t>(row),
                           .kv_idx = static_cast<int32_t>(key),
                           .seqlen_q = static_cast<int32_t>(p.seqlen_q),
                           .seqlen_kv = static_cast<int32_t>(p.seqlen_kv),
                           .head_dim = p.head_dim_qk};
  const score::Loads loads{
      [](int, std::span<const int64_t> at) { return at[0] % 3 == 0 ? 1.0 : 0.0; }, {}};
  return score::evaluate(score_program(p), point, loads);
}

struct Case {
  const char* score_mod;
  const char* mask_mod;
  const char* same_as;  // fields, of a problem of 40 rows and 70 keys
};

constexpr Case kRecognised[] = {
    {"", "return kv_idx <= q_idx;", "mask=causal_top_left"},
    {"", "return q_idx >= kv_idx;", "mask=causal_top_left"},
    {"", "return !(kv_idx > q_idx);", "mask=causal_top_left"},
    {"", "return 0 <= q_idx - kv_idx;", "mask=causal_top_left"},
    {"", "return kv_idx < q_idx + 1;", "mask=causal_top_left"},
    {"", "int offset = seqlen_kv - seqlen_q; return q_idx + offset >= kv_idx;",
     "mask=causal_bottom_right"},
    {"", "return q_idx - kv_idx < 9 && kv_idx <= q_idx;", "mask=causal_top_left,window=8:-"},
    {"", "return kv_idx <= q_idx & kv_idx + 9 > q_idx;", "mask=causal_top_left,window=8:-"},
    {"", "return abs(q_idx + seqlen_kv - seqlen_q - kv_idx) <= 5;", "window=5:5"},
    {"", "return kv_idx - seqlen_kv <= q_idx - seqlen_q + 12;", "window=-:12"},
    {"return kv_idx <= q_idx ? score : -INFINITY;", "", "mask=causal_top_left"},
    {"return kv_idx > q_idx ? -INFINITY : score;", "", "mask=causal_top_left"},
    {"if (q_idx < kv_idx) return -INFINITY; return 20 * tanh(score / 20);", "",
     "mask=causal_top_left,softcap=20"},
    {"return tanh(score / 30.) * 30.;", "", "softcap=30"},
    {"return score;", "", ""},
    {"return kv_idx <= q_idx ? score : -INFINITY;", "return q_idx - kv_idx <= 6;",
     "mask=causal_top_left,window=6:-"},
};

TEST(RecognisedPrograms, BecomeTheBuiltInFeatures) {
  for (const Case& one : kRecognised) {
    const Problem p = problem("seqlen_q=40,seqlen_kv=70", one.score_mod, one.mask_mod);
    const Problem built_in =
        parse_problem(fmt::format("head_dim=64,heads=2,batch=1,seqlen_q=40,seqlen_kv=70{}{}",
                                  *one.same_as == '\0' ? "" : ",", one.same_as));
    EXPECT_EQ(to_text(canonical(p)), to_text(canonical(built_in)))
        << one.score_mod << " " << one.mask_mod;
    EXPECT_EQ(canonical(canonical(p)), canonical(p));
  }
}

TEST(RecognisedPrograms, RenderLikeTheBuiltInFeatures) {
  const Problem p = problem("seqlen=4096", "", "return q_idx - kv_idx < 1024 && kv_idx <= q_idx;");
  const Problem built_in = parse_problem(
      "head_dim=64,heads=2,batch=1,seqlen=4096,mask=causal_bottom_right,window=1023:-");
  for (const char* name : {"sm_75", "sm_80", "sm_90a"}) {
    const Arch arch = parse_arch(name);
    const KernelSpec spec = spec_of(canonical(p));
    const Family family = *serving(spec, {arch}).best();
    const Config config =
        family.kernel_template->default_config(spec, arch, shape_of(p), typical_device(arch).facts);
    EXPECT_EQ(render(*family.kernel_template, spec, arch, config).text,
              render(*family.kernel_template, spec_of(canonical(built_in)), arch, config).text);
    EXPECT_THAT(render(*family.kernel_template, spec, arch, config).text,
                testing::Not(testing::HasSubstr("score_element")));
  }
}

// A score program's mask and a mask program become one mask program. Other features, given in any
// order, are combined with it.
TEST(RecognisedPrograms, JoinedMasksAreOneProgram) {
  const char* const hides =
      "// capture documents: int32[1]\n"
      "return documents[q_idx] == documents[kv_idx] ? score : -INFINITY;";
  const char* const shows = "// capture seen: bool[1]\nreturn seen[kv_idx] || q_idx >= kv_idx;";
  for (const char* more : {"seqlen=40", "seqlen=40,chunk=16", "seqlen=40,key_lengths=1,alibi=1"}) {
    const Problem p = canonical(problem(more, hides, shows));
    const ScoreCaptures captures = score_captures(p);
    std::set<std::string> names;
    for (const CaptureSpec& capture : captures.captures) names.insert(capture.name);
    EXPECT_EQ(names.count("documents") + names.count("seen"), 2U) << more;
    EXPECT_EQ(find_user_program(p.scores.mask_mod)->program.parts(), 1) << more;
    const Problem again = problem(
        more, "", find_user_program(p.scores.mask_mod)->text);  // as another caller would give it
    EXPECT_NO_THROW(score_captures(canonical(again))) << more;
  }
}

// Programs that are recognised in part, or not at all, hide the same keys at any length.
TEST(RecognisedPrograms, HideTheSameKeys) {
  std::vector<std::pair<std::string, std::string>> programs{
      {"", "// capture seen: bool[1]\nreturn kv_idx <= q_idx && seen[kv_idx];"},
      {"", "return (kv_idx <= q_idx || kv_idx < 3) && q_idx - kv_idx < 7;"},
      {"", "return kv_idx <= q_idx && (kv_idx <= q_idx || head == 0) && kv_idx != 4;"},
      {"", "return kv_idx <= q_idx && kv_idx <= q_idx + seqlen_kv - seqlen_q;"},
      {"", "return q_idx + 2 > kv_idx;"},
      {"", "return kv_idx < q_idx;"},
      {"", "return q_idx - kv_idx < -1;"},
      {"", "return abs(q_idx - kv_idx) < 4;"},
      {"", "return 2 * q_idx >= kv_idx;"},
      {"", "return kv_idx <= q_idx && q_idx - kv_idx < 8 && q_idx - kv_idx < 5;"},
      {"return kv_idx <= q_idx ? score * 0.5 : -INFINITY;", "return kv_idx != 2;"},
      {"return score > 0. ? score : -INFINITY;", ""},
      {"return 20 * tanh(score / 21);", "return true;"},
      {"return kv_idx <= q_idx ? -INFINITY : INFINITY;", ""},
  };
  for (const Case& one : kRecognised) programs.emplace_back(one.score_mod, one.mask_mod);
  for (const auto& [score_mod, mask_mod] : programs)
    for (const auto& [rows, keys] :
         {std::pair(9, 9), std::pair(5, 12), std::pair(12, 5), std::pair(1, 8)})
      for (const char* more : {"", ",mask=causal_bottom_right", ",window=3:2", ",alibi=1",
                               ",chunk=4", ",prefix=1", ",mask=causal_top_left,window=4:-"}) {
        const Problem p = problem(fmt::format("seqlen_q={},seqlen_kv={}{}", rows, keys, more),
                                  score_mod, mask_mod);
        const Problem same = with_built_ins(p);
        EXPECT_NO_THROW(validate(same));
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t key = 0; key < keys; ++key)
            ASSERT_EQ(score_at(p, row, key, 0.75), score_at(same, row, key, 0.75))
                << to_text(p) << score_mod << mask_mod << " as " << to_text(same) << " at " << row
                << ", " << key;
      }
}

TEST(RecognisedPrograms, OthersStay) {
  const std::pair<const char*, const char*> programs[] = {
      {"return score * 1.5;", ""},
      {"return 20 * tanh(score / 21);", ""},
      {"return score > 0. ? score : -INFINITY;", ""},
      {"// capture s: fp32[1]\nreturn score - s[head] * abs(q_idx - kv_idx);", ""},
      {"", "return kv_idx < q_idx;"},
      {"", "return kv_idx != q_idx;"},
      {"", "// scalar w: int\nreturn q_idx - kv_idx < w;"},
      {"", "return kv_idx <= q_idx || kv_idx < 4;"},
      {"",
       "// capture keep: bool[1]\nreturn kv_idx <= q_idx && (kv_idx <= q_idx || keep[kv_idx]);"},
      {"", "return q_idx - kv_idx < 5;"},  // the diagonal of causal_top_left without its mask
  };
  for (const auto& [score_mod, mask_mod] : programs) {
    const Problem p = problem("seqlen_q=40,seqlen_kv=70", score_mod, mask_mod);
    EXPECT_EQ(with_built_ins(p), p) << score_mod << mask_mod;
  }
}

TEST(RecognisedPrograms, WhatIsLeftKeepsItsNames) {
  const Problem p = problem(
      "seqlen=64", "// capture a: fp32[1]\nreturn kv_idx == 3 ? -INFINITY : score + a[head];",
      "// capture keep: bool[1]\nreturn keep[kv_idx] && kv_idx <= q_idx;");
  const Problem same = canonical(p);
  EXPECT_EQ(same.mask, Mask::kCausalBottomRight);  // as many rows as keys
  const std::vector<CaptureSpec> captures = captures_of(same);
  ASSERT_EQ(captures.size(), 2U);
  EXPECT_EQ(captures[0].name, "keep");
  EXPECT_EQ(captures[1].name, "a");
  EXPECT_TRUE(has_fixed_masks(p, with_built_ins(p)));
}

}  // namespace
}  // namespace attune
