// SPDX-License-Identifier: Apache-2.0
// The score language: which texts are read, into which tree, and with which message and place other
// texts are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "generator/core/system/error.hpp"
#include "generator/score/language/parse.hpp"
#include "generator/score/language/program.hpp"
#include "tests/support/error_text.hpp"
#include "tuner/fuzz/random_program.hpp"

namespace attune::score {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const Declarations kDeclarations{
    {{"slopes", CaptureType::kFp32, 1},
     {"table", CaptureType::kBf16, 2},
     {"ids", CaptureType::kInt64, 2},
     {"keep", CaptureType::kBool, 1},
     {"gain", CaptureType::kFp32, 0}},
    {{"window", Type::kInt}, {"cap", Type::kFloat}, {"on", Type::kBool}}};

Program score(std::string_view text) {
  return parse(text, Kind::kScore, kDeclarations, "score_mod");
}
Program mask(std::string_view text) { return parse(text, Kind::kMask, kDeclarations, "mask_mod"); }
std::string canonical(std::string_view text) { return canonical_text(score(text)); }
std::string canonical_mask(std::string_view text) { return canonical_text(mask(text)); }

std::string refusal(std::string_view text, Kind kind = Kind::kScore,
                    const Declarations& declarations = kDeclarations) {
  return testing::error_text(
      [&] { parse(text, kind, declarations, kind == Kind::kScore ? "score_mod" : "mask_mod"); },
      ErrorCode::kInvalidArgument);
}

std::string repeated(std::string_view piece, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += piece;
  return text;
}

TEST(ScoreParser, ReadsWhatTheHeaderShows) {
  EXPECT_EQ(
      canonical("float slope = slopes[head];\n"
                "if (kv_idx > q_idx) return -INFINITY;\n"
                "return score - slope * abs(kv_idx - q_idx);\n"),
      "return q_idx < kv_idx ? -INFINITY : score - slopes[head] * float(abs(kv_idx - q_idx));\n");
  EXPECT_EQ(canonical_mask("return kv_idx <= q_idx && (q_idx - kv_idx < window || keep[batch]);"),
            "return kv_idx <= q_idx && (q_idx - kv_idx < window || keep[batch]);\n");
}

TEST(ScoreParser, OperatorsBindAsInC) {
  const std::pair<const char*, const char*> kCases[] = {
      {"return score - cap - (score - 1) * 2;", "score - cap - (score - 1.0) * 2.0"},
      {"return score - cap * 2 / (score * gain);", "score - cap * 2.0 / (score * gain)"},
      {"return -score * -cap - -gain;", "-score * (-cap) - (-gain)"},
      {"return head & 3 | 5 ^ batch << 1 + kv_head;",
       "float((head & 3) | (5 ^ (batch << (1 + kv_head))))"},
      {"return on == (q_idx < 5) ? score : cap;", "on == (q_idx < 5) ? score : cap"},
      {"return on == q_idx < 5 ? score : cap;", "on == (q_idx < 5) ? score : cap"},
      {"return !on || on && head > 2 ? 1 : on ? 2 : cap;",
       "!on || (on && 2 < head) ? 1.0 : (on ? 2.0 : cap)"},
      {"return (float)head / 2 + (int)score / 2;", "float(head) / 2.0 + float(int(score) / 2)"},
      {"return select(on & head >= 1, 1, cap);", "on && 1 <= head ? 1.0 : cap"},
      {"return ~-head;", "float(~(-head))"}};
  for (const auto& [text, expected] : kCases)
    EXPECT_EQ(canonical(text), "return " + std::string(expected) + ";\n") << text;
}

TEST(ScoreParser, FoldsConstants) {
  EXPECT_EQ(canonical("const int w = 1 << 10; return score * (w + 2 * 3 - 7 / 2 - -7 % 4);"),
            "return score * 1030.0;\n");
  EXPECT_EQ(canonical("return exp2(-1) * score + (3 > 2 ? 4 : cap);"),
            "return 0.5 * score + 4.0;\n");
  EXPECT_EQ(canonical("return true && on || false ? score : score;"), "return score;\n");
  EXPECT_EQ(canonical("return -(-score) + 0x10 + int(-2.9) + floordiv(-7, 2) + floormod(-7, 2);"),
            "return score + 16.0 + (-2.0) + (-4.0) + 1.0;\n");
  // An infinity is not folded, since the language has no literal for it.
  EXPECT_EQ(canonical("return score + 1.0 / 0.0;"), "return score + 1.0 / 0.0;\n");
  EXPECT_EQ(canonical("return head + -2147483648;"), "return float(head + (-2147483648));\n");
}

TEST(ScoreParser, SharesEqualSubexpressions) {
  const Program program =
      score("float a = tanh(score / cap); float b = tanh(score / cap); return a * b;");
  EXPECT_EQ(program.nodes().size(), 5U);  // score, cap, quotient, tanh, product
  EXPECT_EQ(canonical_text(program), "float v0 = tanh(score / cap);\nreturn v0 * v0;\n");
  EXPECT_EQ(program, score("/* any */ const float t=tanh(score/cap);return t*(t);"));
}

TEST(ScoreParser, ChainsOfIfsAreEvaluatedInOrder) {
  EXPECT_EQ(
      canonical(
          "if (on) return 1; else if (head == 0) { return 2; } else { int h = head; return h; }"),
      "return on ? 1.0 : (head == 0 ? 2.0 : float(head));\n");
  // If a branch does not always return, the statements after it serve the other cases.
  EXPECT_EQ(canonical("if (on) { if (head == 0) return 1; } else return 2; return 3;"),
            "return on && head == 0 ? 1.0 : (!on ? 2.0 : 3.0);\n");
  EXPECT_EQ(canonical("if (on) if (head == 0) return 1; else return 2; return 3;"),
            "return on && head == 0 ? 1.0 : (on ? 2.0 : 3.0);\n");
}

TEST(ScoreParser, NumbersCapturesByFirstUse) {
  const Program program = score("return gain * table[head][kv_idx] + cap + slopes[window];");
  EXPECT_THAT(program.captures(), ElementsAre(Capture{"gain", CaptureType::kFp32, 0},
                                              Capture{"table", CaptureType::kBf16, 2},
                                              Capture{"slopes", CaptureType::kFp32, 1}));
  EXPECT_THAT(program.scalars(),
              ElementsAre(Scalar{"cap", Type::kFloat}, Scalar{"window", Type::kInt}));
  EXPECT_EQ(program.capture_origins()[0].place, 4);
  EXPECT_EQ(program.scalar_origins()[1].place, 0);
}

TEST(ScoreParser, WarnsOfUnusedDeclarations) {
  std::vector<std::string> warnings;
  parse("return score * slopes[head] * cap;", Kind::kScore, kDeclarations, "score_mod", &warnings);
  EXPECT_THAT(warnings, ElementsAre("score_mod: capture table is declared and not used",
                                    "score_mod: capture ids is declared and not used",
                                    "score_mod: capture keep is declared and not used",
                                    "score_mod: capture gain is declared and not used",
                                    "score_mod: scalar window is declared and not used",
                                    "score_mod: scalar on is declared and not used"));
}

TEST(ScoreParser, RefusalsShowThePlace) {
  EXPECT_EQ(refusal("float s = slopes[head];\n\treturn score * slops;", Kind::kScore,
                    {{{"slopes", CaptureType::kFp32, 1}, {"table", CaptureType::kFp32, 2}}, {}}),
            "score_mod:2:17: 'slops' is not declared; captures are slopes, table\n"
            "  \treturn score * slops;\n"
            "  \t               ^");
  EXPECT_THAT(
      refusal("return slops;"),
      HasSubstr("captures are slopes, table, ids, keep, gain; scalars are window, cap, on"));
  EXPECT_EQ(refusal(""), "score_mod:1:1: no value is returned\n  \n  ^");
  // A long line is quoted in part.
  const std::string message = refusal("return " + repeated("score + ", 5000) + "nowhere;");
  EXPECT_THAT(message, StartsWith("score_mod:1:40008: 'nowhere' is not declared"));
  EXPECT_LT(message.size(), 400U);
}

using Refusals = std::vector<std::pair<const char*, const char*>>;

void expect_refusals(const Refusals& cases) {
  for (const auto& [text, words] : cases) {
    EXPECT_THAT(refusal(text), HasSubstr(words)) << text;
    EXPECT_THAT(refusal(text), StartsWith("score_mod:")) << text;
  }
}

TEST(ScoreParser, RefusesTypesAndPaths) {
  expect_refusals(
      {{"return score + on;", ":1:14: '+' takes ints and floats, not float and bool"},
       {"return on;", "the result of a score program must be a float, not bool"},
       {"return score", "the text ends where ';' is expected after a returned value"},
       {"float x = 1;", "no value is returned"},
       {"if (on) return 1;", "no value is returned if all conditions are false"},
       {"return 1; return 2;", ":1:11: this is never reached"},
       {"if (score) return 1; return 2;",
        "a condition must be a bool, not float; compare it, as in x != 0"},
       {"return table[head];", "'table' has rank 2, so it takes 2 indices, not 1"},
       {"return slopes;", "'slopes' has rank 1, so it takes 1 index, not 0"},
       {"return gain[0];", "'gain' has rank 0, so it takes 0 indices, not 1"},
       {"return slopes[1.0];", "an index must be an int, not float; convert it with int(..)"},
       {"return sinh(score);", "'sinh' is not a function; functions are abs, min"},
       {"return min(score);", "min takes 2 arguments, not 1"},
       {"return score % 2;", "'%' takes two ints, not float and int"},
       {"return score & 2;", "'&' takes two ints or two bools, not float and int"},
       {"return on << 2;", "'<<' takes two ints, not bool and int"},
       {"return floordiv(score, 2);", "an argument of floordiv must be an int, not float"},
       {"return head < on;", "'<' takes two numbers, not int and bool"},
       {"return 0 < head < 3;", "'<' takes two numbers, not bool and int"},
       {"return on ? 1 : on;", "both values of a choice must have one type, not int and bool"}});
  EXPECT_THAT(refusal("return score > 0;", Kind::kMask),
              StartsWith("mask_mod:1:8: 'score' is not known to a mask program"));
  EXPECT_THAT(refusal("return ids[batch][q_idx];", Kind::kMask),
              HasSubstr("the result of a mask program must be a bool, not int"));
}

TEST(ScoreParser, RefusesNumbersNamesAndSigns) {
  expect_refusals(
      {{"return 2147483648;", "2147483648 does not fit in an int of 32 bits"},
       {"return 2147483647 + 1;", ":1:19: 2147483648 does not fit in an int of 32 bits"},
       {"return 0x100000000;", "0x100000000 does not fit in an int"},
       {"const int a = 65536; return a * a;", "4294967296 does not fit in an int"},
       {"return abs(-2147483647 - 1);", "2147483648 does not fit in an int"},
       {"return int(3e9);", "3000000000 does not fit in an int"},
       {"return 1e39;", "1e39 does not fit in a float"},
       {"return 1.5.2;", "'1.5.2' is not a valid number"},
       {"return 2f;", "'2f' is not a valid number"},
       {"return 010;", "'010' is octal in C"},
       {"int x = 2.5; return x;", "the value of 'x' must be an int, not float"},
       {"bool x = 1; return 1;", "the value of 'x' must be a bool, not int"},
       {"float head = 1; return head;", "'head' is already in use"},
       {"float cap = 1; return cap;", "'cap' is already in use: a capture or scalar has this name"},
       {"int a = 1; int a = 2; return a;", "'a' is already in use"},
       {"if (on) { int a = 1; return a; } return a;", "'a' is not declared"},
       {"score = 2; return score;", "'score' found where a declaration, if or return is expected"},
       {"return score = 2;", "'=' assigns, which only declarations do"},
       {"return ++score;", "'++' is not in the language"},
       {"return score->x;", "'->' is not in the language"},
       {"for (;;) return 1;", "'for' found where a declaration, if or return is expected"},
       {"return while;", "'while': the language has neither loops nor jumps"},
       {"return score @ 2;", ":1:14: '@' is not in the language"},
       {"return \xc3\xa9;", "a character of code 195 is not in the language"},
       {"return score /* no end", ":1:14: this comment has no end"},
       {"return (score;", "';' found where ')' is expected"},
       {"return !score;", "the operand of '!' must be a bool, not float"},
       {"return -on;", "the operand of '-' must be an int or a float, not bool"},
       {"return tanh(on);", "an argument of tanh must be a float, not bool"},
       {"return max(on, 1);", "an argument of max must be an int or a float, not bool"},
       {"if (on) { } return 1;", "this branch returns no value"},
       {"if (on) int a = 1; return a;", "'int' found where a branch returns a value"}});
}

TEST(ScoreParser, RefusesDeclarations) {
  const auto declared = [](std::string name, int rank) {
    return refusal("return 1;", Kind::kScore, {{{std::move(name), CaptureType::kFp32, rank}}, {}});
  };
  EXPECT_EQ(declared("fine_1", 4), "accepted");
  EXPECT_THAT(declared("q_idx", 1), HasSubstr("a capture is called \"q_idx\""));
  EXPECT_THAT(declared("tanh", 1), HasSubstr("a capture is called \"tanh\""));
  EXPECT_THAT(declared("return", 1), HasSubstr("a capture is called \"return\""));
  EXPECT_THAT(declared("", 1), HasSubstr("a capture is called \"\""));
  EXPECT_THAT(declared("1a", 1), HasSubstr("a capture is called \"1a\""));
  EXPECT_THAT(declared("a-b", 1), HasSubstr("a capture is called \"a-b\""));
  EXPECT_THAT(declared("a", 5), HasSubstr("capture a has rank 5; must be 0 to 4"));
  EXPECT_THAT(declared("a", -1), HasSubstr("capture a has rank -1"));
  EXPECT_THAT(
      refusal("return 1;", Kind::kScore, {{{"a", CaptureType::kFp32, 1}}, {{"a", Type::kInt}}}),
      HasSubstr("\"a\" is declared twice"));
  Declarations many;
  for (int i = 0; i < 64; ++i)
    many.captures.push_back({"c" + std::to_string(i), CaptureType::kFp32, 0});
  EXPECT_EQ(refusal("return c0;", Kind::kScore, many), "accepted");
  std::string sum = "return c0";
  for (int i = 1; i < kMaxScoreCaptures; ++i) sum += " + c" + std::to_string(i);
  EXPECT_EQ(refusal(sum + ";", Kind::kScore, many), "accepted");
  EXPECT_THAT(refusal(sum + " + c63;", Kind::kScore, many),
              HasSubstr("score_mod has 13 captures in use; must be at most 12"));
  many.captures.push_back({"c64", CaptureType::kFp32, 0});
  EXPECT_THAT(refusal("return c0;", Kind::kScore, many),
              HasSubstr("65 captures are declared; must be at most 64"));
}

TEST(ScoreParser, LargeTextsEndInASentence) {
  const size_t most = kMaxTextBytes - 20;
  for (const char* piece : {"(", "-(", "!(", "tanh(", "slopes[", "on ? ", "(float)(", "1 + (", "{",
                            "if (on) ", "if (on) {", "if (on) return 1; else {"}) {
    const std::string text = repeated(piece, most / std::string_view(piece).size());
    const std::string message = refusal(piece[0] == 'i' ? text : "return " + text);
    EXPECT_NE(message, "accepted") << piece;
    EXPECT_LT(message.size(), 600U) << piece;
  }
  EXPECT_THAT(refusal(repeated(" ", kMaxTextBytes + 1)),
              HasSubstr("has 1048577 bytes; must be at most 1048576"));
  EXPECT_THAT(refusal("return " + repeated("(", 199) + "1" + repeated(")", 199) + ";"), "accepted");
  EXPECT_THAT(refusal("return " + repeated("(", 200) + "1" + repeated(")", 200) + ";"),
              HasSubstr("nest deeper than 200 levels"));
  // Signs, sums and choices in a row do not nest.
  EXPECT_EQ(canonical("return " + repeated("- ", 100000) + "score;"), "return score;\n");
  EXPECT_EQ(score("return " + repeated("score + ", 4000) + "cap;").nodes().size(), 4002U);
  EXPECT_THAT(refusal("return " + repeated("score + ", 4095) + "cap;"),
              HasSubstr("score_mod has 4097 nodes; must be at most 4096"));
  EXPECT_THAT(refusal("return " + repeated("score + ", 100000) + "cap;"),
              HasSubstr("far more than 4096 nodes"));
  std::string choices = "return ";
  for (int i = 0; i < 1000; ++i)
    choices += "head == " + std::to_string(i) + " ? " + std::to_string(i + 1) + " : ";
  EXPECT_EQ(refusal(choices + "score;"), "accepted");
}

// Any bytes give a program, or an Error with a sentence.
TEST(ScoreParser, AnyTextIsParsedOrRefusedWithASentence) {
  EXPECT_TRUE(rc::check([](uint64_t seed, const std::vector<std::pair<uint16_t, char>>& changes) {
    RandomProgram random = random_program(seed);
    for (const auto& [place, letter] : changes)
      random.text[place % random.text.size()] = letter == 'x' ? '(' : letter;
    try {
      parse(random.text, random.kind, random.declarations, "score_mod");
    } catch (const Error& error) {
      RC_ASSERT(error.code() == ErrorCode::kInvalidArgument);
      RC_ASSERT(std::string(error.what()).rfind("score_mod", 0) == 0);
    }
  }));
}

}  // namespace
}  // namespace attune::score
