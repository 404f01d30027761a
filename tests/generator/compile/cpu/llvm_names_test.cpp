// SPDX-License-Identifier: Apache-2.0
// Compares names and features of CPUs with LLVM 19's answers: for this machine, for every part of
// AArch64, and for every name that LLVM knows. Built if LLVM's archives are installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/TargetParser/AArch64TargetParser.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/TargetParser/X86TargetParser.h>

#include <algorithm>

#include "generator/compile/clang_compiler.hpp"
#include "generator/compile/cpu/host_arch.hpp"

namespace attune {
namespace {

TEST(LlvmNames, ThisMachineHasLlvmsNameAndFeatures) {
  const Arch arch = detect_host_arch();
  EXPECT_EQ(arch.cpu, llvm::sys::getHostCPUName().str());
  std::vector<std::string> features;
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    if (feature.second && !feature.first().starts_with("avx10"))
      features.push_back("+" + feature.first().str());
  std::sort(features.begin(), features.end());
  EXPECT_EQ(arch.features, features);
  const std::vector<std::string> arguments = clang_arguments(arch);
  EXPECT_EQ(arguments.at(0), "-triple");
  EXPECT_EQ(llvm::Triple(arguments.at(1)).getArch(),
            llvm::Triple(llvm::sys::getProcessTriple()).getArch());
}

// LLVM also names 32-bit CPUs, on which this process could not run.
bool is_64_bit(const std::string& name) { return llvm::AArch64::parseCpu(name).has_value(); }

TEST(LlvmNames, EveryPartOfAarch64HasLlvmsName) {
  int named = 0;
  for (int implementer = 0; implementer < 256; ++implementer)
    for (int variant = 0; variant < (implementer == 0x53 ? 16 : 1); ++variant)
      for (int part = 0; part < 0x1000; ++part) {
        char text[160];
        std::snprintf(text, sizeof text,
                      "CPU implementer\t: 0x%02x\nCPU variant\t: 0x%x\nCPU part\t: 0x%03x\n",
                      static_cast<unsigned>(implementer), static_cast<unsigned>(variant),
                      static_cast<unsigned>(part));
        const std::string expected = llvm::sys::detail::getHostCPUNameForARM(text).str();
        if (expected != "generic" && !is_64_bit(expected)) continue;
        named += expected != "generic";
        ASSERT_EQ(aarch64_cpu_name(text), expected) << text;
      }
  EXPECT_GT(named, 60);
}

TEST(LlvmNames, EveryNameOfLlvmIsKnown) {
  constexpr bool kOf64Bits = true;
  llvm::SmallVector<llvm::StringRef, 128> names;
  llvm::X86::fillValidCPUArchList(names, kOf64Bits);
  llvm::AArch64::fillValidCPUArchList(names);
  EXPECT_GT(names.size(), 100U);
  for (const llvm::StringRef name : names) EXPECT_TRUE(is_cpu_name(name.str())) << name.str();
  for (const char* name : {"i686", "pentium4", "znver", "cortex-a8", "power9", ""})
    EXPECT_FALSE(is_cpu_name(name)) << name;
}

}  // namespace
}  // namespace attune
