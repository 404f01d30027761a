// SPDX-License-Identifier: Apache-2.0
// Text without comments: everything that a compiler sees stays, all else is removed.
#include "generator/render/renderer.hpp"

#include <gtest/gtest.h>

#include "generator/render/inliner.hpp"

namespace attune {
namespace {

TEST(CommentFree, CommentsBlanksAndEmptyLinesAreRemoved) {
  EXPECT_EQ(comment_free("// head\n\n  int a;  // one\n\n/* two\n lines */\nint b;   \t\n"),
            "  int a;\nint b;\n");
  EXPECT_EQ(comment_free("a/**/b"), "a b\n") << "two words stay two";
  EXPECT_EQ(comment_free("int a;  // goes on \\\n here too\nint b;\n"), "int a;\nint b;\n");
  EXPECT_EQ(comment_free("int a;  // at the end"), "int a;\n");
  EXPECT_EQ(comment_free("int a; /* open"), "int a;\n");
  EXPECT_EQ(comment_free(""), "");
  EXPECT_EQ(comment_free("a / b\n"), "a / b\n");
}

TEST(CommentFree, LiteralsStay) {
  for (const char* text : {"\"// no comment\"\n", "\"\\\"// still none\"\n", "'\"' + '/' + '/'\n",
                           "1'000'000 / 2\n", "R\"(a // b)\" R\"x(\" /* )\" )x\"\n", "'\\''\n"})
    EXPECT_EQ(comment_free(text), text);
  EXPECT_EQ(comment_free("1'000  // '\nint b;\n"), "1'000\nint b;\n");
}

TEST(CommentFree, EveryTemplateFileKeepsItsCodeAndLosesItsComments) {
  for (const BundledFile& file : bundled_files()) {
    const std::string text = comment_free(file.text);
    const bool has_code = text.find("namespace attune {\n") != std::string::npos;
    const bool chooses_parts = text.find("#include ") != std::string::npos;
    const bool tells = text.find("#define ") != std::string::npos ||
                       text.find("extern \"C\" ") != std::string::npos;
    EXPECT_TRUE(has_code || chooses_parts || tells) << file.path;
    EXPECT_EQ(text.find("SPDX"), std::string::npos) << file.path;
    EXPECT_EQ(text.find("//"), std::string::npos) << file.path;
    EXPECT_EQ(text.find("\n\n"), std::string::npos) << file.path;
    EXPECT_EQ(comment_free(text), text) << file.path;
  }
}

}  // namespace
}  // namespace attune
