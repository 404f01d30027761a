// SPDX-License-Identifier: Apache-2.0
// UTF-8 and line breaks in text from outside.
#include "generator/core/system/foreign_text.hpp"

#include <gtest/gtest.h>

namespace attune {
namespace {

TEST(ForeignText, Utf8IsReadToItsEnd) {
  for (const char* text :
       {"", "return score;", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"})
    EXPECT_EQ(utf8_end(text), std::string_view(text).size()) << text;
}

TEST(ForeignText, OtherBytesEndIt) {
  for (const char* bytes :
       {"\xff", "\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3\x28", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xe2\x82", "\xe2\x82z", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xf0\x9f\x98"})
    EXPECT_EQ(utf8_end("ok" + std::string(bytes)), 2U) << bytes;
}

TEST(ForeignText, OtherBytesAndControlsBecomeQuestionMarks) {
  const auto printable = [](std::string text) {
    make_printable(text.data(), text.size());
    return text;
  };
  EXPECT_EQ(printable("a\xff\xe2\x82 b\x1b[1m\x7f\r"), "a??? b?[1m??");
  EXPECT_EQ(printable("\xc2\x9b\xc2\xa0\xf0\x9f\x98\x80\n"), "??\xc2\xa0\xf0\x9f\x98\x80\n");
  EXPECT_EQ(printable("\xf0\x9f\x98"), "???") << "cut";
}

TEST(ForeignText, ALineHasNoBreaks) {
  EXPECT_EQ(one_line("H200\nno fault\r\tfound"), "H200 no fault  found");
}

}  // namespace
}  // namespace attune
