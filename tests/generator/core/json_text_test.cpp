// SPDX-License-Identifier: Apache-2.0
// JSON from outside: what is no JSON, nests deeply or holds a number that no double holds is
// refused with a sentence.
#include "generator/core/json_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace attune {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_json<nlohmann::json>(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

std::string nested(int levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(JsonText, IsReadAsItStands) {
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
