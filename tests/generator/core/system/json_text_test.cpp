// SPDX-License-Identifier: Apache-2.0
// JSON from outside: other text, deep nesting and numbers that no double holds are refused with a
// sentence.
#include "generator/core/system/json_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "generator/core/system/json_value.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

template <class Read>
std::string refusal_of(const Read& read) {
  return testing::error_text([&] { read(); }, ErrorCode::kInvalidArgument);
}

// Returns the message of a refusal, after checking that both readers give the same one.
std::string refusal(const std::string& text) {
  const std::string said = refusal_of([&] { parse_json<nlohmann::json>(text); });
  EXPECT_EQ(refusal_of([&] { JsonValue::parse(text); }), said);
  return said;
}

std::string nested(int levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(JsonText, IsReadUnchanged) {
  EXPECT_EQ(parse_json<nlohmann::json>(R"({"b": [1, 2.5, null], "a": "x"})").dump(),
            R"({"a":"x","b":[1,2.5,null]})");
  EXPECT_EQ(parse_json<nlohmann::ordered_json>(R"({"b": 1, "a": 2})").dump(), R"({"b":1,"a":2})");
}

TEST(JsonText, BytesThatAreNotUtf8AreReplaced) {
  const nlohmann::json json{{"name", "H200 \xff"}};
  EXPECT_EQ(to_json_text(json), "{\"name\":\"H200 \xef\xbf\xbd\"}");
  EXPECT_EQ(to_json_text(json, -1, JsonLetters::kAscii), R"({"name":"H200 \ufffd"})");
  EXPECT_EQ(to_json_text(nlohmann::json{{"a", 1}}, 1), "{\n \"a\": 1\n}");
}

TEST(JsonValue, TheTreeEqualsNlohmanns) {
  const std::string text = R"({"b":[1,-2,2.5,null,true,[],{}],"a":"x\u00e4\n\"",)"
                           R"("u":18446744073709551615,"n":-9223372036854775808})";
  const JsonValue tree = JsonValue::parse(text);
  EXPECT_EQ(tree.dump(), nlohmann::ordered_json::parse(text).dump());
  EXPECT_EQ(json_string(tree, "a"), "x\u00e4\n\"");
  EXPECT_EQ(json_integer<uint64_t>(tree, "u"), UINT64_MAX);
  EXPECT_EQ(json_list(tree, "b").items().size(), 7U);
  EXPECT_EQ(json_number(JsonValue::parse(R"({"k":1,"k":2})"), "k"), 2) << "the last one counts";
  EXPECT_FALSE(tree.contains("c"));
  EXPECT_FALSE(JsonValue::parse("[1]").contains("c"));
  EXPECT_EQ(JsonValue::parse("[]").begin(), JsonValue::parse("[]").end());
}

// A wrong member gives one message, in either tree.
TEST(JsonValue, MembersAreRefusedAlike) {
  for (const std::string text :
       {R"({"k":"x"})", R"({"k":1.5})", R"({"k":-7})", R"({"k":[1,{"a":null}]})", R"({"k":true})",
        R"({"k":99999999999})", R"({"k":null})", R"({})", R"([3])", R"("x")"}) {
    const auto tree = JsonValue::parse(text);
    const auto json = nlohmann::ordered_json::parse(text);
    const auto same = [&](const auto& read) {
      EXPECT_EQ(refusal_of([&] { read(tree); }), refusal_of([&] { read(json); })) << text;
    };
    same([](const auto& in) { json_string(in, "k"); });
    same([](const auto& in) { json_number(in, "k"); });
    same([](const auto& in) { json_flag(in, "k"); });
    same([](const auto& in) { json_list(in, "k"); });
    same([](const auto& in) { json_integer(in, "k"); });
    same([](const auto& in) { json_integer<int64_t>(in, "k", 0); });
  }
}

TEST(JsonText, DepthIsBounded) {
  EXPECT_EQ(refusal(nested(kMaxJsonDepth)), "accepted");
  EXPECT_EQ(refusal(nested(kMaxJsonDepth + 2)), "JSON nests deeper than 64 levels");
  EXPECT_EQ(refusal(nested(1000000)), "JSON nests deeper than 64 levels");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += R"({"a":)";
  EXPECT_EQ(refusal(objects), "JSON nests deeper than 64 levels");
}

TEST(JsonText, FaultsNameTheLineAndStayShort) {
  EXPECT_THAT(refusal("{\n  \"a\": ,\n}"), HasSubstr("not JSON, at line 2"));
  EXPECT_THAT(refusal(""), HasSubstr("not JSON, at line 1"));
  EXPECT_THAT(refusal(R"({"a": 1e400})"), HasSubstr("not JSON, number overflow parsing '1e400'"));
  const std::string of_long_token = refusal("{\"" + std::string(100000, 'x'));
  EXPECT_LT(of_long_token.size(), 300U);
  EXPECT_THAT(of_long_token, EndsWith("..."));
}

}  // namespace
}  // namespace attune
