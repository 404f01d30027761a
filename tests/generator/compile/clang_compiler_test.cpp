// SPDX-License-Identifier: Apache-2.0
// clang in process, through the CPU plugin. Skips aloud where the plugin is not built.
#include "generator/compile/clang_compiler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/core/system/error.hpp"
#include "generator/template_registry.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

class ClangCompiler : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    toolchain_ = compiling_toolchain(&why);
    if (toolchain_ == nullptr) GTEST_SKIP() << why;
    arch_ = toolchain_->host_arch();
  }
  KernelImage compile(const std::string& text) const {
    return toolchain_->compiler().compile({text, "sample.cpp"}, arch_);
  }
  std::string error_of(const std::string& text, const Arch& arch) const {
    return testing::error_text(
        [&] {
          toolchain_->compiler().compile({text, "sample.cpp"}, arch);
        },
        ErrorCode::kCompile);
  }

  const CpuToolchain* toolchain_ = nullptr;
  Arch arch_;
};

// Returns a kernel that writes `value` over the first bytes of the arguments.
std::string writer(int value) {
  return "extern \"C\" void attune_kernel(void* args, int, int) { *static_cast<int*>(args) = " +
         std::to_string(value) + "; }\n";
}

TEST_F(ClangCompiler, CompiledCodeRuns) {
  const KernelImage image = compile(writer(42));
  EXPECT_EQ(image.format, ImageFormat::kHostObject);
  EXPECT_EQ(image.bytes.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_GT(image.compile_ms, 0);
  EXPECT_EQ(image.log, "");
  KernelArguments args{};
  toolchain_->load(image.bytes, {image.entry})->function()(&args, 0, 1);
  int written = 0;
  std::memcpy(&written, &args, sizeof written);
  EXPECT_EQ(written, 42);
}

TEST_F(ClangCompiler, SourcesFromSeveralThreadsDoNotMix) {
  std::vector<std::thread> threads;
  std::vector<int> written(6);
  for (size_t i = 0; i < written.size(); ++i)
    threads.emplace_back([&, i] {
      const KernelImage image = compile(writer(static_cast<int>(100 + i)));
      KernelArguments args{};
      toolchain_->load(image.bytes, {image.entry})->function()(&args, 0, 1);
      std::memcpy(&written[i], &args, sizeof(int));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(written, ::testing::ElementsAre(100, 101, 102, 103, 104, 105));
}

TEST_F(ClangCompiler, TheSameSourceGivesTheSameBytes) {
  EXPECT_EQ(compile(writer(1)).bytes, compile(writer(1)).bytes);
}

TEST_F(ClangCompiler, ErrorNamesFileArchAndCause) {
  const std::string error = error_of("int x = nowhere;\n", arch_);
  EXPECT_THAT(error, HasSubstr("sample.cpp"));
  EXPECT_THAT(error, HasSubstr(arch_.name()));
  EXPECT_THAT(error, HasSubstr("undeclared identifier 'nowhere'"));
  EXPECT_THAT(error_of("#include <vector>\n", arch_), HasSubstr("'vector' file not found"));
  Arch unknown = parse_arch("cpu:not-a-cpu");
  EXPECT_THAT(error_of(writer(1), unknown), HasSubstr("not-a-cpu"));
}

TEST_F(ClangCompiler, CudaArchIsRefused) {
  EXPECT_THROW(toolchain_->compiler().compile({writer(1), "sample.cpp"}, parse_arch("sm_90")),
               Error);
}

TEST_F(ClangCompiler, OptionsNameTheFeaturesOfThisMachine) {
  EXPECT_THAT(toolchain_->compiler().version(), ::testing::StartsWith("clang 19."));
  const std::string options = toolchain_->compiler().options(arch_);
  EXPECT_THAT(options, HasSubstr("-O3"));
  for (const std::string& feature : arch_.features) {
    EXPECT_THAT(options, HasSubstr("-target-feature " + feature));
    EXPECT_NE(feature.substr(0, 6), "+avx10");  // clang warns if it comes with AVX-512
  }
  EXPECT_TRUE(arch_.vector_bytes == 16 || arch_.vector_bytes == 32 || arch_.vector_bytes == 64);
}

// Compiles each default config of the CPU templates: head dims x dtypes x masks x GQA. The inner
// loops must not run out of registers, which would make the stack frame grow with the accumulators.
TEST_F(ClangCompiler, DefaultConfigsCompile) {
  int count = 0;
  for (const char* dtype : {"fp32", "bf16", "fp16"})
    for (const int head_dim : {16, 64, 80, 128, 256}) {
      const char* mask = count % 2 == 0 ? "none" : "causal_bottom_right";
      const Problem problem =
          parse_problem("dtype=" + std::string(dtype) + ",head_dim=" + std::to_string(head_dim) +
                        ",heads=" + std::to_string(1 + count % 7) + "/1,seqlen=1024,mask=" + mask);
      const KernelSpec spec = spec_of(problem);
      const Serving found = serving(spec, {arch_});
      for (const Family& family : {found.families.at(0), found.reference.value()}) {
        const KernelTemplate* const t = family.kernel_template;
        const Config config =
            t->default_config(spec, arch_, shape_of(problem), typical_device(arch_).facts);
        const KernelImage image =
            toolchain_->compiler().compile(render(*t, spec, arch_, config), arch_);
        EXPECT_EQ(image.log, "") << t->name();
        EXPECT_GE(image.info.stack_bytes, 0);
        EXPECT_LE(image.info.stack_bytes, 16384) << t->name() << " " << to_text(spec);
        ++count;
      }
    }
  EXPECT_EQ(count, 30);
}

}  // namespace
}  // namespace attune
