// SPDX-License-Identifier: Apache-2.0
// Conditions of lines: what they ask of a kernel's constants, and the lines that may have one.
#include "generator/render/inliner.hpp"

#include <gtest/gtest.h>

#include <string>

#include "generator/core/system/error.hpp"
#include "generator/template_registry.hpp"
#include "tests/generator/altered_template.hpp"

namespace attune {
namespace {

// A template of one file, which has the text of a test.
class OneFile : public testing::AlteredTemplate {
 public:
  explicit OneFile(std::string path)
      : AlteredTemplate(*all_templates().front()), path_(std::move(path)) {}
  std::string_view source_path() const override { return path_; }

 private:
  std::string path_;
};

// Returns the text of a kernel with the constant kA = 1.
std::string inlined(const std::string& text) {
  static int number = 0;
  const OneFile kernel_template("cuda/one_file_" + std::to_string(++number) + ".cu");
  add_bundled_file(std::string(kernel_template.source_path()), text);
  return Inliner(kernel_template, Preamble{{{"int", "kA", "1"}}, ""}, {}).run("");
}

std::string refusal(const std::string& text) {
  try {
    return "taken: " + inlined(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    return error.what();
  }
}

constexpr char kHead[] =
    "extern \"C\" __global__ void __launch_bounds__(kThreads, 1)\n"
    "    attune_kernel(const __grid_constant__ Args first,\n";

TEST(Inliner, ParametersOfKernelsHaveConditions) {
  const std::string text = inlined(std::string(kHead) +
                                   "    const __grid_constant__ Args with,     // where kA\n"
                                   "    const __grid_constant__ Args other,    // where kA == 2\n"
                                   "    const __grid_constant__ Args without,  // unless kA\n"
                                   "    const __grid_constant__ Args last) {\n"
                                   "}\n");
  for (const char* name : {" first,", " with,", " last)"})
    EXPECT_NE(text.find(name), std::string::npos) << name;
  for (const char* name : {" other,", " without,"})
    EXPECT_EQ(text.find(name), std::string::npos) << name;
}

TEST(Inliner, TheLastParameterHasNoComma) {
  const auto listed = [](const char* of_lists, const char* of_maps) {
    return inlined(std::string(kHead) + "    const __grid_constant__ Args lists,  // where " +
                   of_lists + "\n    const __grid_constant__ Args maps  // where " + of_maps +
                   "\n    ) {\n}\n");
  };
  EXPECT_NE(
      listed("kA", "kA").find(" lists,  // where kA\n    const __grid_constant__ Args maps  "),
      std::string::npos);
  EXPECT_NE(listed("kA", "kB").find(" lists  // where kA\n    ) {\n"), std::string::npos);
  EXPECT_NE(listed("kB", "kB").find(" first\n    ) {\n"), std::string::npos);
  EXPECT_NE(listed("kB", "kA").find(" first,\n    const __grid_constant__ Args maps  "),
            std::string::npos);
}

TEST(Inliner, LeadingCommasHaveNoConditions) {
  EXPECT_NE(refusal(std::string(kHead) + "    , const __grid_constant__ Args last  // where kA\n")
                .find("one parameter"),
            std::string::npos);
}

TEST(Inliner, IncludesHaveConditions) {
  EXPECT_EQ(inlined("#include \"cuda/nowhere.cuh\"  // where kB\nint a;\n").find("nowhere"),
            std::string::npos);
  EXPECT_NE(refusal("#include \"cuda/nowhere.cuh\"  // where kA\n").find("not in templates/"),
            std::string::npos);
}

TEST(Inliner, FailedConditionsChooseOtherFiles) {
  add_bundled_file("cuda/chosen.cuh", "int real;\n");
  add_bundled_file("cuda/none/chosen.cuh", "int without;\n");
  const std::string include = "#include \"cuda/chosen.cuh\"  // ";
  for (const char* condition : {"where kA", "where kA > 0", "unless kB", "where kA unless kB"})
    EXPECT_NE(inlined(include + condition + ", else none/\n").find("int real;"), std::string::npos)
        << condition;
  for (const char* condition : {"where kB", "where kA > 1", "unless kA", "where kB unless kA"}) {
    const std::string text = inlined(include + condition + ", else none/\n");
    EXPECT_NE(text.find("// ---- cuda/none/chosen.cuh\nint without;"), std::string::npos) << text;
    EXPECT_EQ(text.find("int real;"), std::string::npos) << text;
  }
}

TEST(Inliner, OtherFilesHaveNames) {
  add_bundled_file("cuda/chosen.cuh", "int real;\n");
  add_bundled_file("cuda/second.cuh", "int second;\n");
  const std::string include = "#include \"cuda/chosen.cuh\"  // ";
  EXPECT_NE(inlined(include + "where kA == 2, else second.cuh\n").find("second.cuh\nint second;"),
            std::string::npos);
  EXPECT_EQ(inlined(include + "where kA, else second.cuh\n").find("second"), std::string::npos);
}

TEST(Inliner, OtherFilesExist) {
  add_bundled_file("cuda/alone.cuh", "int real;\n");
  const std::string text =
      refusal("\n#include \"cuda/alone.cuh\"  // where kA, else none/\nint a;\n");
  EXPECT_NE(text.find(".cu:2 names \"cuda/none/alone.cuh\""), std::string::npos) << text;
}

TEST(Inliner, ParametersHaveNoOtherFiles) {
  for (const char* condition : {"where kA", "unless kA"})
    EXPECT_NE(refusal(std::string(kHead) + "    const __grid_constant__ Args args,  // " +
                      condition + ", else none/\n")
                  .find("a condition must be"),
              std::string::npos)
        << condition;
}

TEST(Inliner, OtherLinesHaveNone) {
  for (const char* line :
       {"int a;  // where kA", "  // A comment of a line that is left out.  // where kA",
        "#if 1  // where kA", "int a;  // unless kA", "int a;  // where kA == 1",
        "const __grid_constant__ Args args,  // where kA"}) {
    const std::string text = refusal("int before;\n" + std::string(line) + "\n");
    EXPECT_NE(text.find(":2 has a condition"), std::string::npos) << text;
    EXPECT_NE(text.find("cuda/one_file_"), std::string::npos) << text;
  }
  for (const char* line :
       {"    const __grid_constant__ Args last) {  // where kA", "    int number,  // where kA",
        "    const __grid_constant__ Args last) {\n  call();  // where kA"})
    EXPECT_NE(refusal(kHead + std::string(line) + "\n").find(" has a condition"), std::string::npos)
        << line;
}

TEST(Inliner, CommentsAreNoConditions) {
  const std::string text =
      "// where kernels begin\n  // where kB says so\nint a;  // where it is\n";
  EXPECT_NE(inlined(text).find(text), std::string::npos);
}

}  // namespace
}  // namespace attune
