// SPDX-License-Identifier: Apache-2.0
// NVRTC: compiles for archs without a device; errors carry file, arch and the compiler's message.
// Skips aloud without NVRTC.
#include "generator/compile/nvrtc_compiler.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    compiler_ = open_nvrtc_compiler();
    if (compiler_ == nullptr) GTEST_SKIP() << nvrtc_advice();
  }
  static Source source(const std::string& text) { return {text, "sample.cu"}; }
  const Compiler* compiler_ = nullptr;
};

constexpr const char* kGood =
    "extern \"C\" __global__ void attune_kernel(float* x) { x[threadIdx.x] *= 2.0f; }\n";

TEST_F(NvrtcTest, CompilesForSeveralArchsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<KernelImage> images(3);
  const char* archs[] = {"sm_80", "sm_90a", "sm_120"};
  for (size_t i = 0; i < images.size(); ++i)
    threads.emplace_back(
        [&, i] { images[i] = compiler_->compile(source(kGood), parse_arch(archs[i])); });
  for (std::thread& thread : threads) thread.join();
  for (const KernelImage& image : images) {
    EXPECT_EQ(image.bytes.substr(0, 4),
              "\x7f"
              "ELF");
    EXPECT_EQ(image.info.spill_store_bytes, 0);
    EXPECT_GT(image.compile_ms, 0);
    EXPECT_EQ(image.log.find('\0'), std::string::npos);
    EXPECT_NE(image.log.find("registers"), std::string::npos) << image.log;
  }
}

TEST_F(NvrtcTest, ErrorNamesFileArchAndCause) {
  try {
    compiler_->compile(
        source("extern \"C\" __global__ void attune_kernel() { undefined_thing(); }"),
        parse_arch("sm_80"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCompile);
    const std::string message = error.what();
    for (const char* part : {"sample.cu", "sm_80", "undefined_thing"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST_F(NvrtcTest, RefusesCpuArch) {
  EXPECT_THROW(compiler_->compile(source(kGood), parse_arch("cpu:x86-64")), Error);
}

TEST(NvrtcLocation, ErrorListsThePlacesThatWereTried) {
  NvrtcLocation location;
  const Compiler* compiler = open_nvrtc_compiler(&location);
  EXPECT_EQ(compiler != nullptr, !location.path.empty());
  EXPECT_FALSE(location.tried.empty());
  EXPECT_NE(nvrtc_advice().find("nvidia-cuda-nvrtc"), std::string::npos);
}

}  // namespace
}  // namespace attune
