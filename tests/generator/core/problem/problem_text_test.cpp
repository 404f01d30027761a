// SPDX-License-Identifier: Apache-2.0
// Properties of the texts of problems, specs, shapes and configs, with random fields. A written
// text is read back, in any order and spacing; a message about a wrong text names the key.
#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>

#include "generator/core/problem/config.hpp"
#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/problem/problem_fields.hpp"
#include "generator/core/system/error.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

namespace gen = rc::gen;

int64_t length() {
  return *gen::oneOf(gen::inRange<int64_t>(0, 5000), gen::just<int64_t>(1 << 30));
}
int64_t window_side() {
  return *gen::oneOf(gen::just<int64_t>(-1), gen::inRange<int64_t>(0, int64_t{1} << 30));
}

void draw_prefill(Problem* p) {
  p->dtype_q = *gen::element(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3);
  p->dtype_kv = p->dtype_o = p->dtype_q;
  if (p->dtype_q == Dtype::kE4m3) {
    p->dtype_kv = *gen::element(Dtype::kE4m3, Dtype::kE5m2);
    p->dtype_o = *gen::element(Dtype::kBf16, Dtype::kFp16);
    p->fp8.accuracy = *gen::element(Accuracy::kAccurate, Accuracy::kFast);
    p->fp8.v_layout = *gen::element(VLayout::kRows, VLayout::kTransposed);
    p->fp8.scale_block_q = 16 * *gen::inRange(0, 4097);
    p->fp8.scale_block_kv = 16 * *gen::inRange(0, 4097);
  }
  if (p->dtype_q == Dtype::kFp32)
    p->fp8.accuracy = *gen::element(Accuracy::kAccurate, Accuracy::kFast, Accuracy::kSplit);
  p->head_dim_qk = 8 * *gen::inRange(2, 33);
  p->head_dim_v = *gen::oneOf(gen::just(p->head_dim_qk),
                              gen::map(gen::inRange(2, 33), [](int n) { return 8 * n; }));
  p->num_heads_kv = *gen::inRange(1, 9);
  p->num_heads_q = p->num_heads_kv * *gen::inRange(1, 9);
  p->seqlen_q = length();
  p->seqlen_kv = *gen::arbitrary<bool>() ? p->seqlen_q : length();
  p->mask = *gen::element(Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight);
  p->window_left = window_side();
  p->window_right = window_side();
  if (*gen::arbitrary<bool>())
    p->softmax_scale = static_cast<float>(*gen::inRange(1, 1000000)) / 7919.f;
}

void draw_quantise(Problem* p) {
  p->op = Op::kQuantise;
  p->dtype_q = p->dtype_kv = *gen::element(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16);
  p->dtype_o = *gen::element(Dtype::kE4m3, Dtype::kE5m2);
  p->head_dim_qk = p->head_dim_v = *gen::element(16, 64, 256);
  p->num_heads_q = p->num_heads_kv = *gen::inRange(1, 65);
  p->seqlen_q = p->seqlen_kv = length();
  p->fp8.scale_block_q = p->fp8.scale_block_kv = 16 * *gen::inRange(0, 4097);
  p->fp8.v_layout = *gen::element(VLayout::kRows, VLayout::kTransposed);
  p->quantise.rotation = *gen::element(Rotation::kNone, Rotation::kHadamard);
}

Problem random_problem() {
  Problem p;
  p.batch = *gen::inRange<int64_t>(1, 100);
  if (*gen::inRange(0, 4) == 0)
    draw_quantise(&p);
  else
    draw_prefill(&p);
  return p;
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts, const std::string& between = ",") {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

// Returns the message of a refusal, or nullopt if the text is parsed. Lets exceptions other than
// attune::Error pass.
template <class Parse>
std::optional<std::string> complaint(const Parse& parse) {
  try {
    parse();
    return std::nullopt;
  } catch (const Error& error) {
    RC_ASSERT(error.code() == ErrorCode::kInvalidArgument ||
              error.code() == ErrorCode::kUnsupported);
    RC_ASSERT(std::string(error.what()).size() > 10u);
    return error.what();
  }
}

// Returns random bytes without a comma, which would end the value.
std::string garbage() {
  std::string text = *gen::oneOf(
      gen::arbitrary<std::string>(), gen::container<std::string>(gen::inRange<char>(32, 127)),
      gen::element<std::string>("-1", "1e9", "99999999999999999999", "0x10", "nan", "1.5", "", "=",
                                "8/", "/8", "4:", ":4", "none ", "BF16", "-", "-:-:-"));
  std::replace(text.begin(), text.end(), ',', ';');
  return text;
}

TEST(ProblemText, IsReadBack) {
  EXPECT_TRUE(rc::check("parse_problem is the inverse of to_text", [] {
    const Problem p = random_problem();
    RC_ASSERT(parse_problem(to_text(p)) == p);
  }));
}

TEST(ProblemText, OrderAndSpacesMeanNothing) {
  EXPECT_TRUE(rc::check("parts in any order, with spaces around commas", [] {
    const Problem p = random_problem();
    std::vector<std::string> parts = parts_of(to_text(p));
    for (size_t i = parts.size(); i > 1; --i)
      std::swap(parts[i - 1], parts[*gen::inRange<size_t>(0, i)]);
    RC_ASSERT(parse_problem(joined(parts, *gen::element<std::string>(",", ", ", " ,", "\t,\n"))) ==
              p);
  }));
}

TEST(ProblemText, SpecAndShapeHoldAllButTheArgumentsOfACall) {
  EXPECT_TRUE(rc::check("texts of spec and shape are read back, and make the problem again", [] {
    Problem p = random_problem();
    const KernelSpec spec = parse_spec_text(to_text(spec_of(p)));
    const Shape shape = parse_shape_text(to_text(shape_of(p)));
    RC_ASSERT(spec == spec_of(p));
    RC_ASSERT(shape == shape_of(p));
    p.softmax_scale = std::nullopt;
    if (p.mask != Mask::kNone) p.window_right = -1;  // the diagonal bounds that side
    const Problem made = problem_of(spec, shape);
    if (!(made == p)) RC_FAIL(to_text(made) + " is not " + to_text(p));
  }));
}

// Returns true if the message names the key or a field that it sets. A value may be refused alone
// ("seqlen is "x"") or together with others ("heads 7/2: ...").
bool names(const std::string& message, const std::string& key) {
  if (message.find(key) != std::string::npos) return true;
  for (const ProblemKey& known : problem_keys())
    for (const ProblemField* field : known.fields) {
      if (known.name != key) continue;
      if (message.find(field->name) != std::string::npos ||
          message.find(field->key) != std::string::npos)
        return true;
      for (const std::string& name : field->c_names)
        if (message.find(name) != std::string::npos) return true;
    }
  return message.find("dtype") != std::string::npos && key.starts_with("dtype");
}

TEST(ProblemText, AWrongValueIsRefusedByItsKey) {
  int refused = 0;
  EXPECT_TRUE(rc::check("a value of garbage", [&] {
    std::vector<std::string> parts = parts_of(to_text(random_problem()));
    std::string& part = parts[*gen::inRange<size_t>(0, parts.size())];
    const std::string key = part.substr(0, part.find('='));
    const std::string value = garbage();
    part = key + "=" + value;
    const auto message = complaint([&] { parse_problem(joined(parts)); });
    if (!message) return;
    ++refused;
    if (!names(*message, key)) RC_FAIL(key + "=" + value + ": " + *message);
  }));
  EXPECT_GT(refused, 50);
}

TEST(ProblemText, AnUnknownOrRepeatedKeyIsNamed) {
  EXPECT_TRUE(rc::check("one part too many", [] {
    std::vector<std::string> parts = parts_of(to_text(random_problem()));
    const size_t which = *gen::inRange<size_t>(0, parts.size());
    const std::string twice = parts[which].substr(0, parts[which].find('='));
    const bool unknown = *gen::arbitrary<bool>();
    const std::string key = unknown ? twice + "_x" : twice;
    parts.push_back(key + "=" + parts[which].substr(parts[which].find('=') + 1));
    const auto message = complaint([&] { parse_problem(joined(parts)); });
    RC_ASSERT(message.has_value());
    RC_ASSERT(message->find(key) != std::string::npos);
    if (unknown)
      RC_ASSERT(message->find("head_dim_qk") != std::string::npos);  // lists the known keys
  }));
}

TEST(ProblemText, NamesNoFilesUnlessTheCallerReadsThem) {
  const auto message = [](const auto& parse) -> std::string {
    return testing::error_text([&] { parse(); });
  };
  const auto says = ::testing::HasSubstr(
      "score_mod is @/etc/hostname; must be a digest: only the program attune reads files");
  EXPECT_THAT(message([] { parse_spec_text("score_mod=@/etc/hostname"); }), says);
  const std::string text = "head_dim=64,heads=1,seqlen=8,score_mod=@/etc/hostname";
  EXPECT_THAT(message([&] { parse_problem(text); }), says);
  EXPECT_THAT(message([&] { read_problem(text, TextLengths::kOptional); }), says);
  EXPECT_THAT(message([&] { parse_problem(text, TextLengths::kRequired, TextFiles::kRead); }),
              ::testing::Not(::testing::HasSubstr("must be a digest")));
}

TEST(ProblemText, GarbageIsRefusedOrRead) {
  EXPECT_TRUE(rc::check("no parser throws anything but attune::Error", [] {
    const std::string text = *gen::oneOf(
        gen::arbitrary<std::string>(),
        gen::container<std::string>(gen::element('=', ',', ':', '/', '-', '0', '9', 'a', ' ')));
    complaint([&] { parse_problem(text); });
    complaint([&] { parse_spec_text(text); });
    complaint([&] { parse_shape_text(text); });
    if (complaint([&] { parse_config(text); })) return;
    RC_ASSERT(parse_config(parse_config(text).to_text()) == parse_config(text));
  }));
}

std::string knob_name() {
  return *gen::nonEmpty(gen::container<std::string>(
      gen::elementOf(std::string("abcdefghijklmnopqrstuvwxyz_0123456789"))));
}

TEST(ConfigText, IsReadBack) {
  EXPECT_TRUE(rc::check("parse_config is the inverse of to_text", [] {
    Config config;
    for (int i = *gen::inRange(0, 20); i > 0; --i)
      config.set(knob_name(), *gen::arbitrary<int64_t>());
    RC_ASSERT(parse_config(config.to_text()) == config);
  }));
}

TEST(ConfigText, AWrongPartOfAConfigIsRefusedByItsKnob) {
  EXPECT_TRUE(rc::check("a value of garbage, or a knob that stands twice", [] {
    Config config;
    for (int i = *gen::inRange(1, 6); i > 0; --i)
      config.set(knob_name(), *gen::arbitrary<int64_t>());
    const std::string knob = config.knobs()[*gen::inRange<size_t>(0, config.knobs().size())].first;
    const std::string value = *gen::arbitrary<bool>() ? "7" : garbage();
    const auto message =
        complaint([&] { parse_config(config.to_text() + "," + knob + "=" + value); });
    RC_ASSERT(message.has_value());  // the knob is in the text already
    RC_ASSERT(message->find(knob) != std::string::npos);
  }));
}

// Problems are stored and shared by their texts, so no text may change. problem_texts.txt has four
// lines for each problem: as somebody typed it, its text, and the texts of its spec and shape. Add
// lines for new fields; do not edit lines.
TEST(ProblemText, SavedTextsDoNotChange) {
  std::ifstream file(ATTUNE_PROBLEM_TEXTS);
  std::set<std::string> used;
  std::string typed, problem, spec, shape;
  int count = 0;
  while (std::getline(file, typed)) {
    if (typed.empty() || typed.front() == '#') continue;
    std::getline(file, problem);
    std::getline(file, spec);
    std::getline(file, shape);
    const Problem p = parse_problem(typed);
    EXPECT_EQ(to_text(p), problem) << typed;
    EXPECT_EQ(to_text(spec_of(p)), spec) << typed;
    EXPECT_EQ(to_text(shape_of(p)), shape) << typed;
    EXPECT_EQ(parse_problem(problem), p) << typed;
    EXPECT_EQ(parse_spec_text(spec), spec_of(p)) << typed;
    for (const ProblemField& field : problem_fields())
      if (!field.is_default(p)) used.insert(field.name);
    ++count;
  }
  EXPECT_GT(count, 80);
  for (const ProblemField& field : problem_fields())
    if (field.name != "score_mod" && field.name != "mask_mod" && field.name != "load")  // digests
      EXPECT_EQ(used.count(field.name), 1u) << "no text has " << field.name;
}

}  // namespace
}  // namespace attune
