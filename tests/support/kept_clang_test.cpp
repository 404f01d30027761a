// SPDX-License-Identifier: Apache-2.0
// Tests the plugin that keeps images (kept_clang.cpp). A kept image differs from a compiled one by
// its compile time alone, which is that of the first compile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/core/system/error.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

// Compiles with a warning, so that there is a log.
std::string source_text(int value) {
  return "#warning kept\nextern \"C\" int attune_kernel() { return " + std::to_string(value) +
         "; }\n";
}

class KeptClang : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("ATTUNE_CPU_PLUGIN", ATTUNE_KEPT_PLUGIN, 1);
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) /
              (std::string("attune_kept_") + std::to_string(::getpid()) + test->name());
    fs::create_directory(folder_);
    ::setenv("ATTUNE_TEST_IMAGES", folder_.c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  KernelImage compile(int value, const std::string& file_name = "sample.cpp") const {
    const CpuToolchain& toolchain = cpu_toolchain();
    return toolchain.compiler().compile({source_text(value), file_name}, toolchain.host_arch());
  }
  // Returns the kept files.
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
      found.push_back(entry.path());
    return found;
  }

  fs::path folder_;
};

TEST_F(KeptClang, ASecondCompileReturnsTheKeptImage) {
  const KernelImage first = compile(1);
  ASSERT_EQ(files().size(), 1u);
  const KernelImage second = compile(1);
  EXPECT_EQ(second.bytes, first.bytes);
  EXPECT_EQ(second.format, ImageFormat::kHostObject);
  EXPECT_EQ(second.entry, first.entry);
  EXPECT_THAT(second.log, ::testing::HasSubstr("warning: kept"));
  EXPECT_EQ(second.log, first.log);
  EXPECT_EQ(second.compile_ms, first.compile_ms);  // two compiles never take the same time
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(KeptClang, EachPartOfTheKeyCounts) {
  const KernelImage first = compile(1);
  EXPECT_NE(compile(2).bytes, first.bytes);
  EXPECT_EQ(files().size(), 2u);
  EXPECT_THAT(compile(1, "other.cpp").log, ::testing::HasSubstr("other.cpp:1"));
  EXPECT_EQ(files().size(), 3u);
  Arch plain = cpu_toolchain().host_arch();
  plain.features.pop_back();
  cpu_toolchain().compiler().compile({source_text(1), "sample.cpp"}, plain);
  EXPECT_EQ(files().size(), 4u);
}

TEST_F(KeptClang, ADamagedFileIsCompiledAgain) {
  const KernelImage first = compile(1);
  ASSERT_EQ(files().size(), 1u);
  const fs::path file = files().front();
  const auto size = fs::file_size(file);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(size) - 1);
    bytes.put('\x5a');
  }
  EXPECT_EQ(compile(1).bytes, first.bytes);
  fs::resize_file(file, 10);
  EXPECT_EQ(compile(1).bytes, first.bytes);
  EXPECT_EQ(fs::file_size(file), size);
}

TEST_F(KeptClang, ARefusedSourceIsNotKept) {
  const CpuToolchain& toolchain = cpu_toolchain();
  for (int time = 0; time < 2; ++time)
    EXPECT_THAT(
        testing::error_text(
            [&] {
              toolchain.compiler().compile({"no code", "sample.cpp"}, toolchain.host_arch());
            },
            ErrorCode::kCompile),
        ::testing::HasSubstr("sample.cpp:1"));
  EXPECT_TRUE(files().empty());
}

TEST_F(KeptClang, WithoutAFolderEachSourceIsCompiled) {
  const std::string bytes = compile(1).bytes;
  fs::remove_all(folder_);
  EXPECT_EQ(compile(1).bytes, bytes);
  ::setenv("ATTUNE_TEST_IMAGES", "", 1);
  EXPECT_EQ(compile(1).bytes, bytes);
  EXPECT_FALSE(fs::exists(folder_));
}

}  // namespace
}  // namespace attune
