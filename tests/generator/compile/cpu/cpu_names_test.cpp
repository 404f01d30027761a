// SPDX-License-Identifier: Apache-2.0
// Names and features of CPUs must equal LLVM's, since stored kernels are found by them. LLVM's
// answers are in recorded_cpus.txt. llvm_names_test asks LLVM itself if it is installed.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "generator/compile/clang_compiler.hpp"
#include "generator/compile/cpu/host_arch.hpp"

namespace attune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(X86Cpu, NamesAndFeaturesEqualLlvmsAnswers) {
  std::ifstream file(ATTUNE_RECORDED_CPUS);
  int seen = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream text(line);
    std::string vendor, name, expected;
    text >> vendor >> std::hex;
    Cpuid cpuid{vendor, {}};
    for (auto& word : cpuid.words) text >> word;
    std::getline(text >> std::ws, name, ':');
    std::getline(text >> std::ws, expected);
    EXPECT_EQ(x86_cpu_name(cpuid), name);
    std::vector<std::string> features = x86_features(cpuid);
    std::sort(features.begin(), features.end());
    EXPECT_EQ(fmt::format("{}", fmt::join(features, " ")), expected) << name;
    ++seen;
  }
  EXPECT_EQ(seen, 72);
}

std::string core(int implementer, int part, int variant = 0) {
  return fmt::format(
      "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: {:#04x}\nCPU architecture: 8\n"
      "CPU variant\t: {:#x}\nCPU part\t: {:#05x}\nCPU revision\t: 1\n\n",
      implementer, variant, part);
}

TEST(Aarch64Cpu, NamesEqualLlvmsAnswers) {
  EXPECT_EQ(aarch64_cpu_name(core(0x41, 0xd0c)), "neoverse-n1");
  EXPECT_EQ(aarch64_cpu_name(core(0x41, 0xd4f)), "neoverse-v2");
  EXPECT_EQ(aarch64_cpu_name(core(0x6d, 0xd49)), "neoverse-n2");
  EXPECT_EQ(aarch64_cpu_name(core(0xc0, 0xac3)), "ampere1");
  EXPECT_EQ(aarch64_cpu_name(core(0x43, 0x0af)), "thunderx2t99");
  EXPECT_EQ(aarch64_cpu_name(core(0x53, 0x003, 1)), "exynos-m4");
  EXPECT_EQ(aarch64_cpu_name(core(0x53, 0x002, 1)), "exynos-m3");
  EXPECT_EQ(aarch64_cpu_name(core(0x61, 0x022)), "generic");
  EXPECT_EQ(aarch64_cpu_name(core(0x41, 0xd03) + core(0x41, 0xd08)), "cortex-a72");
  EXPECT_EQ(
      aarch64_cpu_name(core(0x41, 0xd08) + "Hardware\t: Qualcomm Technologies, Inc MSM8996\n"),
      "cortex-a53");
  for (const char* text :
       {"", "CPU implementer", "CPU implementer : 0x\nCPU part : 0xd0cq\n", ":::"})
    EXPECT_EQ(aarch64_cpu_name(text), "generic") << text;
}

TEST(Aarch64Cpu, FeaturesEqualLlvmsAnswers) {
  EXPECT_THAT(aarch64_features(
                  core(0x41, 0xd40) +
                  "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp "
                  "cpuid asimdrdm jscvt fcma lrcpc sve i8mm bf16\nFeatures\t: sve2\n"),
              ElementsAre("neon", "fp-armv8", "crc", "lse", "sve", "crypto"));
  EXPECT_THAT(aarch64_features("Features : asimd sve2 aes pmull sha1\n"),
              ElementsAre("neon", "sve2"));
  EXPECT_THAT(aarch64_features("Features :\n"), IsEmpty());
  EXPECT_THAT(aarch64_features(""), IsEmpty());
}

TEST(HostArch, ItIsACpuWithItsFeatures) {
  const Arch arch = detect_host_arch();
  EXPECT_EQ(arch.target, Target::kCpu);
  EXPECT_TRUE(is_cpu_name(arch.cpu)) << arch.cpu;
  EXPECT_TRUE(std::is_sorted(arch.features.begin(), arch.features.end()));
  EXPECT_FALSE(arch.features.empty());
}

TEST(HostArch, NamesOfOtherCpusAreKnown) {
  for (const char* name :
       {"znver4", "x86-64-v3", "sapphirerapids", "atom", "neoverse-v2", "grace", "generic"})
    EXPECT_TRUE(is_cpu_name(name)) << name;
  for (const char* name :
       {"", "znver", "znver44", "i686", "Znver4", "pentium4", "cortex-a8", "z15"})
    EXPECT_FALSE(is_cpu_name(name)) << name;
}

// The arguments are part of each stored CPU image's key: a change makes all stored images unusable.
TEST(ClangArguments, EqualTheArgumentsOfStoredKernels) {
  Arch arch = parse_arch("cpu:znver4");
  arch.features = {"+avx2", "+fma"};
  arch.vector_bytes = 32;
#if defined(__x86_64__)
  const std::string triple = "x86_64-pc-linux-gnu", oldest = "x86-64";
#else
  const std::string triple = "aarch64-unknown-linux-gnu", oldest = "generic";
#endif
  EXPECT_EQ(
      fmt::format("{}", fmt::join(clang_arguments(arch), " ")),
      "-triple " + triple +
          " -x c++ -std=c++20 -O3 -ffp-contract=fast -fno-rounding-math -mrelocation-model pic "
          "-pic-level 2 -mframe-pointer=none -fstack-size-section -disable-llvm-verifier "
          "-discard-value-names -fno-unroll-loops -Wno-psabi -mprefer-vector-width=256 "
          "-target-cpu " +
          oldest + " -tune-cpu znver4 -target-feature +avx2 -target-feature +fma");
}

}  // namespace
}  // namespace attune
