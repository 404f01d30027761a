// SPDX-License-Identifier: Apache-2.0
// SASS digests follow instructions, registers, shared memory, barriers and constants; they do not
// follow names, comments and line numbers. Skips aloud without NVRTC.
#include "tests/generator/sass_digest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/compile/elf_file.hpp"
#include "generator/compile/nvrtc_compiler.hpp"
#include "tests/generator/altered_template.hpp"

namespace attune {
namespace {

constexpr const char* kKernel =
    "extern \"C\" __global__ void attune_kernel(float* x) {\n"
    "  __shared__ float shared[300];\n"
    "  shared[threadIdx.x] = x[threadIdx.x];\n"
    "  __syncthreads();\n"
    "  x[threadIdx.x] = shared[299 - threadIdx.x] + 3.0f;\n"
    "}\n";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

class SassDigest : public ::testing::Test {
 protected:
  void SetUp() override {
    nvrtc_ = open_nvrtc_compiler();
    if (nvrtc_ == nullptr) GTEST_SKIP() << nvrtc_advice();
  }
  KernelImage image(const std::string& text, const char* arch = "sm_90a") const {
    return nvrtc_->compile({text, "sample.cu"}, parse_arch(arch));
  }
  std::string digest(const std::string& text, const char* arch = "sm_90a") const {
    return testing::sass_digest(image(text, arch).bytes).value_or("none");
  }
  const Compiler* nvrtc_ = nullptr;
};

TEST_F(SassDigest, RegistersSharedMemoryAndBarriersEqualTheLog) {
  const std::string text = replaced(kKernel, "__syncthreads();", "__barrier_sync_count(3, 64);");
  for (const char* arch : {"sm_75", "sm_80", "sm_90a", "sm_120"}) {
    const KernelImage compiled = image(text, arch);
    EXPECT_THAT(compiled.log, ::testing::HasSubstr("used 4 barriers")) << arch;
    EXPECT_THAT(testing::sass_digest(compiled.bytes).value_or(""),
                ::testing::EndsWith(fmt::format(" {} 1200 4", compiled.info.registers)))
        << arch;
  }
}

TEST_F(SassDigest, NamesCommentsAndLinesChangeNothing) {
  const std::string plain = digest(kKernel);
  EXPECT_EQ(digest("\n\n// a remark\n" + std::string(kKernel)), plain);
  EXPECT_EQ(digest(replaced(kKernel, "attune_kernel", "another_name")), plain);
  EXPECT_EQ(testing::sass_digest(
                nvrtc_->compile({kKernel, "elsewhere/file.cu"}, parse_arch("sm_90a")).bytes),
            plain);
}

TEST_F(SassDigest, EachOtherChangeIsFoundAndNamed) {
  const std::string plain = "0 0 | " + digest(kKernel);
  const auto difference = [&](const char* from, const char* to) {
    return testing::line_difference(plain, "0 0 | " + digest(replaced(kKernel, from, to)));
  };
  EXPECT_EQ(difference("3.0f", "4.0f"), "instruction bytes");
  EXPECT_THAT(difference("[300]", "[400]"), ::testing::HasSubstr("shared memory: 1200, now 1600"));
  EXPECT_THAT(difference("__syncthreads();", "__barrier_sync_count(3, 64);"),
              ::testing::HasSubstr("barriers: 1, now 4"));
  EXPECT_EQ(difference("extern", "extern \"C\" __global__ void second(int* x) { *x = 1; }\nextern"),
            "functions: 1, now 2");
  const std::string table = "__constant__ float table[2] = {1, 2};\n" +
                            replaced(kKernel, "3.0f", "table[threadIdx.x & 1]");
  EXPECT_EQ(testing::line_difference("0 0 | " + digest(table),
                                     "0 0 | " + digest(replaced(table, "{1, 2}", "{1, 5}"))),
            "constants");
  EXPECT_EQ(testing::line_difference("12345678 64 | x", "87654321 128 | x"),
            "default config; shared memory of a launch: 64, now 128");
}

// Flips one bit in each instruction of a cubin, like a compiler that chose another instruction.
TEST_F(SassDigest, EachInstructionCounts) {
  const std::string cubin = image(kKernel).bytes;
  const std::string plain = testing::sass_digest(cubin).value_or("none");
  const auto elf = ElfFile::open(cubin);
  ASSERT_TRUE(elf);
  int instructions = 0;
  for (const Elf64_Shdr& section : elf->sections())
    for (size_t at = 0; elf->name(section) == ".text.attune_kernel" && at < section.sh_size;
         at += 16) {
      std::string changed = cubin;
      changed[section.sh_offset + at + 3] ^= 1;
      EXPECT_NE(testing::sass_digest(changed), plain) << at;
      ++instructions;
    }
  EXPECT_GT(instructions, 10);
}

TEST_F(SassDigest, DamagedFilesGiveNoDigest) {
  const std::string cubin = image(kKernel).bytes;
  EXPECT_EQ(testing::sass_digest(""), std::nullopt);
  EXPECT_EQ(testing::sass_digest(cubin.substr(0, cubin.size() / 2)), std::nullopt);
}

// Uses a kernel of the tree: a comment in its template keeps the digest, an instruction changes it.
TEST_F(SassDigest, OfATemplateDependsOnlyOnItsStatements) {
  const KernelTemplate& t = template_by_name("prefill_sm90");
  const KernelSpec spec = spec_of(parse_problem("dtype=bf16,head_dim=64,heads=8,seqlen=4096"));
  const Arch arch = parse_arch("sm_90a");
  const Config config =
      t.default_config(spec, arch, {1, 4096, 4096, 8, 8}, typical_device(arch).facts);
  testing::AlteredTemplate altered(t);
  const auto line = [&] {
    const testing::MatrixKernel kernel{&altered, spec, arch, config, "sample"};
    return testing::digest_line(kernel,
                                nvrtc_->compile(render(altered, spec, arch, config), arch).bytes);
  };
  const std::string plain = line();
  altered.alter_part = [](const KernelSpec&, std::string text) { return "// a remark\n\n" + text; };
  EXPECT_EQ(line(), plain);
  altered.alter_part = [](const KernelSpec&, std::string text) {
    return replaced(std::move(text), "add.u32 low, k_low, 2", "add.u32 low, k_low, 4");
  };
  EXPECT_THAT(testing::line_difference(plain, line()), ::testing::StartsWith("instruction bytes"));
}

TEST(AcceptedDigests, AreReadBackFromTheirFile) {
  const std::string path = ::testing::TempDir() + "/sass_digests.txt";
  testing::write_accepted_digests(path, {"13.0.88", {{"a sm_80 x", "1 2 | 3 4 5 6"}}});
  const testing::AcceptedDigests digests = testing::read_accepted_digests(path);
  EXPECT_EQ(digests.nvrtc, "13.0.88");
  ASSERT_EQ(digests.lines.size(), 1U);
  EXPECT_EQ(digests.lines.at("a sm_80 x"), "1 2 | 3 4 5 6");
}

}  // namespace
}  // namespace attune
