// SPDX-License-Identifier: Apache-2.0
// Reads resources from ELF files and ptxas logs. Cubins come from NVRTC, which needs no GPU; host
// objects come from clang. Cases without their compiler skip aloud.
#include "generator/compile/image_info.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/compile/nvrtc_compiler.hpp"

namespace attune {
namespace {

constexpr const char* kPtxasLog =
    "ptxas info    : Compiling entry function 'attune_kernel' for 'sm_90a'\n"
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized\n"
    "ptxas info    : Function properties for attune_kernel\n"
    "    96 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads\n"
    "ptxas info    : Used 168 registers, used 1 barriers, 1040 bytes smem\n";

TEST(ImageLog, PtxasFiguresAndWarningsAreRead) {
  ImageInfo info;
  add_log_info(kPtxasLog, &info);
  EXPECT_EQ(info.registers, 168);
  EXPECT_EQ(info.stack_bytes, 96);
  EXPECT_EQ(info.spill_store_bytes, 24);
  EXPECT_EQ(info.spill_load_bytes, 28);
  EXPECT_EQ(info.static_shared_bytes, 1040);
  EXPECT_THAT(info.warnings, ::testing::ElementsAre("C7510"));
}

TEST(ImageLog, FaultsForbidMeasuring) {
  ImageInfo info;
  add_log_info("", &info);
  EXPECT_EQ(info.registers, -1);
  EXPECT_EQ(image_fault(info), std::nullopt);
  info.spill_store_bytes = 8;
  EXPECT_THAT(image_fault(info).value_or(""), ::testing::HasSubstr("spills 8 bytes"));
  info.warnings = {"C7510"};
  EXPECT_THAT(image_fault(info).value_or(""), ::testing::HasSubstr("C7510"));
}

TEST(ImageLog, SerialisedProductsAreAFaultWhateverTheirCode) {
  const auto fault_of = [](const std::string& line) {
    ImageInfo info;
    add_log_info("ptxas info    : (" + line + " in the function 'attune_kernel'\n", &info);
    return image_fault(info).value_or("none");
  };
  const std::string loss =
      ") Potential Performance Loss: wgmma.mma_async instructions are serialized due to";
  EXPECT_THAT(fault_of("C7515" + loss + " non wgmma instructions defining accumulator registers"),
              ::testing::HasSubstr("C7515: wgmma serialised (accumulator written"));
  EXPECT_EQ(fault_of("C7598" + loss + " something new"), "C7598: wgmma serialised");
  EXPECT_EQ(fault_of("C7519) Potential Performance Loss: a fence was injected"), "none");
}

class ImageInfoElf : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    toolchain_ = compiling_toolchain(&why);
    if (toolchain_ == nullptr) GTEST_SKIP() << why;
  }
  std::string host_object(const std::string& body) const {
    const std::string text =
        "extern \"C\" void attune_kernel(void* args, int, int) { " + body + " }\n";
    return toolchain_->compiler().compile({text, "sample.cpp"}, toolchain_->host_arch()).bytes;
  }
  const CpuToolchain* toolchain_ = nullptr;
};

TEST_F(ImageInfoElf, StackOfAHostObjectIsRead) {
  const auto small = read_image_info(host_object("*static_cast<int*>(args) = 1;"), "attune_kernel");
  const auto large = read_image_info(
      host_object("volatile int frame[1250]; int* at = static_cast<int*>(args); for (int i = 0; i "
                  "< 1250; ++i) frame[i] = *at; *at = frame[*at];"),
      "attune_kernel");
  ASSERT_TRUE(small && large);
  EXPECT_LE(small->stack_bytes, 64);
  EXPECT_GE(large->stack_bytes,
            5000 - 128);  // x86 keeps the last 128 bytes below the stack pointer
  EXPECT_LE(large->stack_bytes, 5128);
  EXPECT_EQ(small->registers, -1);
}

TEST_F(ImageInfoElf, BytesThatAreNoObjectGiveNoInfo) {
  const std::string object = host_object("*static_cast<int*>(args) = 1;");
  EXPECT_EQ(read_image_info(object, "another_kernel"), std::nullopt);
  EXPECT_EQ(read_image_info("", "attune_kernel"), std::nullopt);
  EXPECT_EQ(read_image_info("no ELF file at all, but longer than a header of sixty-four bytes is",
                            "attune_kernel"),
            std::nullopt);
}

// Reading damaged files must neither crash nor read outside of them (checked by the asan preset).
TEST_F(ImageInfoElf, DamagedFilesAreSurvived) {
  const std::string object = host_object("*static_cast<int*>(args) = 1;");
  for (size_t size = 0; size < object.size(); ++size)
    static_cast<void>(read_image_info(std::string(object, 0, size), "attune_kernel"));
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = object;
    for (int flips = 0; flips < 3; ++flips)
      damaged[random() % damaged.size()] ^= static_cast<char>(1U << random() % 8);
    static_cast<void>(read_image_info(damaged, "attune_kernel"));
  }
}

TEST(ImageInfoCubin, CubinAndPtxasLogAgree) {
  const Compiler* nvrtc = open_nvrtc_compiler();
  if (nvrtc == nullptr) GTEST_SKIP() << nvrtc_advice();
  const std::string text =
      "extern \"C\" __global__ void attune_kernel(float* x) {\n"
      "  __shared__ float shared[300];\n"
      "  float local[64];\n"
      "  for (int i = 0; i < 64; ++i) local[i] = 0;\n"
      "  for (int i = 0; i < 64; ++i) local[(int)x[i]] += x[i + 1];\n"
      "  shared[threadIdx.x] = x[threadIdx.x];\n"
      "  __syncthreads();\n"
      "  x[threadIdx.x] = shared[299 - threadIdx.x] + local[(int)x[0]];\n"
      "}\n";
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const KernelImage image = nvrtc->compile({text, "sample.cu"}, parse_arch(arch));
    const auto from_elf = read_image_info(image.bytes, "attune_kernel");
    ImageInfo from_log;
    add_log_info(image.log, &from_log);
    ASSERT_TRUE(from_elf) << arch;
    EXPECT_GT(from_elf->registers, 0) << arch;
    EXPECT_EQ(from_elf->registers, from_log.registers) << arch;
    EXPECT_EQ(from_elf->static_shared_bytes, from_log.static_shared_bytes) << arch;
    EXPECT_EQ(from_elf->static_shared_bytes, 1200) << arch;
    EXPECT_EQ(from_elf->stack_bytes, 256) << arch;
    EXPECT_EQ(from_elf->stack_bytes, from_log.stack_bytes) << arch;
  }
}

}  // namespace
}  // namespace attune
