// SPDX-License-Identifier: Apache-2.0
// Each refusal of score features, programs and their operands has a message that says what came and
// what must be. core/score_parser_test.cpp has the messages of the language.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "generator/core/system/error.hpp"
#include "generator/score/features/score_operands.hpp"

namespace attune {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

TEST(ScoreRefusals, OfFields) {
  const std::pair<const char*, const char*> cases[] = {
      {"softcap=-1", "softcap is -1; must be a finite number above 0, or 0 for none"},
      {"softcap=nan", "softcap is nan; must be a finite number above 0"},
      {"softcap=inf", "softcap is inf; must be a finite number above 0"},
      {"softcap=much", "softcap is \"much\"; must be a number"},
      {"chunk=-4", "chunk is -4; must be a number of keys above 0, or 0 for none"},
      {"prefix=1,mask=causal_top_left",
       "prefix is given and mask is causal_top_left; mask must be none, since prefix is causal "
       "itself and also shows keys that a causal mask hides"},
      {"alibi=2", "alibi is \"2\"; must be 0 or 1"},
      {"documents=yes", "documents is \"yes\"; must be 0 or 1"},
      {"bias=int8", "\"int8\""},
      {"sinks=e4m3", "\"e4m3\""},
      {"block_map=maybe", "block_map is \"maybe\"; must be none, skips or hides"},
      {"block_map=skips,softcap=3", "block_map is skips, but there is nothing to skip"},
      {"op=block_map", "op block_map has nothing to map"},
      {"op=block_map,documents=1,softcap=2", "softcap is given; op block_map takes only masks"},
      {"op=block_map,documents=1,sinks=fp32", "sinks is given; op block_map takes only masks"},
      {"op=block_map,documents=1,block_map=skips",
       "block_map is skips; op block_map makes such maps"},
      {"op=block_map,documents=1,scale=2", "scale is given; op block_map has no softmax"},
      {"op=block_map,documents=1,dtype=fp16",
       "dtype is fp16; op block_map has no typed operands: must be bf16"},
      {"score_mod=123", "\"123\" is not a program's digest; must be none or 32 hex digits"},
      {"mask_mod=@/nowhere/mask.txt",
       "the program file /nowhere/mask.txt cannot be read: No such file or directory"},
      {"mask_mod=@/", "the program file / cannot be read: it is a folder"},
      {"score_mod=@/dev/zero",
       "the program file /dev/zero cannot be read: it is a device, not a regular file"},
  };
  for (const auto& [text, sentence] : cases)
    EXPECT_THAT(refusal([&, t = text] {
                  parse_problem(std::string("head_dim=64,heads=2,seqlen=8,") + t,
                                TextLengths::kRequired, TextFiles::kRead);
                }),
                HasSubstr(sentence))
        << text;
}

TEST(ScoreRefusals, OfMissingProgramsAndOfTheWrongKind) {
  EXPECT_THAT(refusal([] {
                user_program({1, 2}, score::Kind::kMask, "mask_mod");
              }),
              HasSubstr("mask_mod is 00000000000000010000000000000002; this process has no "
                        "program with that digest"));
  const ProgramDigest mask =
      read_user_program("return kv_idx != 3;", score::Kind::kMask, "m").digest;
  const ProgramDigest mod = read_user_program("return score * 3;", score::Kind::kScore, "s").digest;
  EXPECT_THAT(
      refusal([&] { user_program(mask, score::Kind::kScore, "score_mod"); }),
      HasSubstr("score_mod is a mask program, which returns a bool; must be a score program, "
                "which returns a float"));
  EXPECT_THAT(refusal([&] { user_program(mod, score::Kind::kMask, "mask_mod"); }),
              HasSubstr("must be a mask program, which returns a bool"));
}

TEST(ScoreRefusals, OfDeclarations) {
  for (const char* line :
       {"// capture x: fp99[1]", "// capture x: fp32", "// capture x: fp32[5]",
        "// capture x fp32[1]", "// capture : fp32[", "// scalar n: double", "// scalar n"})
    EXPECT_THAT(
        refusal([&] {
          read_user_program(std::string("\n") + line + "\nreturn score;", score::Kind::kScore,
                            "mine.txt");
        }),
        HasSubstr("mine.txt:2: \"" + std::string(line).substr(3) + "\" is not a declaration"))
        << line;
}

TEST(ScoreRefusals, OfSumsOfProgramsThatAreTooLarge) {
  std::string text, sum = "score";
  for (int i = 0; i < 12; ++i) {
    text += fmt::format("// capture t{}: fp32[1]\n", i);
    sum += fmt::format(" + t{}[head]", i);
  }
  Problem p = parse_problem("head_dim=64,heads=2,seqlen=8,bias=fp32");
  p.scores.score_mod =
      read_user_program(text + "return " + sum + ";", score::Kind::kScore, "s").digest;
  EXPECT_THAT(refusal([&] { score_captures(p); }),
              HasSubstr("the composed program has 13 captures in use; must be at most 12"));
}

class OperandRefusals : public ::testing::Test {
 protected:
  OperandRefusals() {
    problem_ = parse_problem("head_dim=64,heads=2,seqlen=8,bias=fp32,key_lengths=1");
    problem_.scores.score_mod =
        read_user_program("// capture t: bf16[1]\n// scalar n: int\nreturn score + t[head] * n;",
                          score::Kind::kScore, "s")
            .digest;
    wanted_ = score_captures(problem_);
    for (const CaptureSpec& capture : wanted_.captures)
      good_.add(contiguous_capture(capture, numbers_));
    good_.num_scalars = 1;
  }
  // Returns the refusal of valid operands after `change`.
  std::string refused(const std::function<void(ScoreOperands*)>& change) {
    ScoreOperands operands = good_;
    change(&operands);
    return refusal([&] { check_score_operands(problem_, wanted_, &operands); });
  }
  CaptureView* view(ScoreOperands* operands, const std::string& name) const {
    for (size_t i = 0; i < wanted_.captures.size(); ++i)
      if (wanted_.captures[i].name == name) return &operands->captures[i];
    throw std::runtime_error(name);
  }

  alignas(16) float numbers_[256] = {};
  Problem problem_;
  ScoreCaptures wanted_;
  ScoreOperands good_;
};

TEST_F(OperandRefusals, EachHasItsSentence) {
  EXPECT_EQ(refused([](ScoreOperands*) {}), "nothing was refused");
  EXPECT_THAT(refusal([&] { check_score_operands(problem_, wanted_, nullptr); }),
              HasSubstr("scalars has 0 numbers; must be 1 for this plan"));
  EXPECT_THAT(refused([](ScoreOperands* o) { o->num_scalars = 2; }),
              HasSubstr("scalars has 2 numbers; must be 1"));
  EXPECT_THAT(refused([](ScoreOperands* o) { o->num_captures = 1; }),
              HasSubstr("captures has 1 tensors; must be 3 for this plan: "));
  EXPECT_THAT(refused([&](ScoreOperands* o) { view(o, "bias")->data = nullptr; }),
              HasSubstr("bias is null; must be the address of fp32 elements [batch, num_heads_q, "
                        "seqlen_q, seqlen_kv]"));
  EXPECT_THAT(refused([&](ScoreOperands* o) {
                view(o, "t")->data = reinterpret_cast<const char*>(numbers_) + 1;
              }),
              HasSubstr("must be a multiple of 2 bytes, the size of bf16"));
  EXPECT_THAT(refused([&](ScoreOperands* o) { view(o, "bias")->strides[2] = -8; }),
              HasSubstr("bias.strides[2] is -8; must be 0 (to repeat) or more"));
  EXPECT_THAT(refused([&](ScoreOperands* o) { view(o, "t")->extents[0] = 0; }),
              HasSubstr("t.extents[0] is 0; must be 1 to 2147483647"));
  EXPECT_THAT(refused([&](ScoreOperands* o) { view(o, "t")->extents[0] = int64_t{1} << 31; }),
              HasSubstr("t.extents[0] is 2147483648; must be 1 to"));
  EXPECT_THAT(refused([](ScoreOperands* o) { o->q_position0 = -1; }),
              HasSubstr("q_position0 is -1; must be 0 to"));
  EXPECT_THAT(refused([](ScoreOperands* o) { o->kv_position0 = std::numeric_limits<int>::max(); }),
              HasSubstr("kv_position0 is 2147483647; must be 0 to"));
  problem_.seqlen_q = 2000000000, problem_.seqlen_kv = 1500000000;
  EXPECT_THAT(
      refused([](ScoreOperands* o) { o->q_position0 = 147418112; }),
      HasSubstr("q_position0 is 147418112; must be 0 to 147418111 where seqlen_q is 2000000000"));
  EXPECT_THAT(refused([](ScoreOperands* o) { o->kv_position0 = 1000000000; }),
              HasSubstr("kv_position0 is 1000000000; must be 0 to 647418111 where seqlen_kv "
                        "is 1500000000"));
  EXPECT_EQ(
      refused([](ScoreOperands* o) { o->q_position0 = 147418111, o->kv_position0 = 647418111; }),
      "nothing was refused");
  wanted_.has_fixed_masks = true;
  EXPECT_THAT(refused([](ScoreOperands* o) { o->q_position0 = 5; }),
              HasSubstr("q_position0 is 5 and kv_position0 is 0; must be equal"));
  EXPECT_EQ(refused([](ScoreOperands* o) { o->q_position0 = o->kv_position0 = 5; }),
            "nothing was refused");
}

TEST(ScoreOperandsTest, TablesOfDistancesTakeEqualPositions) {
  const Problem p = parse_problem("head_dim=64,heads=1,seqlen=8,relative_bias=fp32");
  const std::vector<float> table(15);
  ScoreOperands operands;
  operands.add({table.data(), {15, 1}, {}});
  operands.q_position0 = operands.kv_position0 = 5;
  const auto refused = [&] {
    return refusal([&] { check_score_operands(p, score_captures(p), &operands); });
  };
  EXPECT_EQ(refused(), "nothing was refused");
  operands.kv_position0 = 4;
  EXPECT_EQ(
      refused(),
      "q_position0 is 5 and kv_position0 is 4; must be equal with relative_bias [num_heads_q, "
      "seqlen_q + seqlen_kv - 1], whose distances count between the call's own rows and keys");
}

}  // namespace
}  // namespace attune
