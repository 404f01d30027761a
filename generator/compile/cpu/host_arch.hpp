// SPDX-License-Identifier: Apache-2.0
// Names CPUs and their features as LLVM 19 does, without LLVM. Stored kernels are found by these
// names, so they must remain LLVM's names. Used by cpu_toolchain.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/problem/arch.hpp"

namespace attune {

// Returns this machine's CPU. The features are those that CPU and operating system provide, not
// those that the CPU's name implies.
Arch detect_host_arch();
// True for the name of an x86-64 or AArch64 CPU that LLVM 19 compiles for, and for this machine's
// CPU.
bool is_cpu_name(std::string_view name);

// x86-64: from the results of the CPUID instruction (x86_cpu.cpp).

// The CPUID registers with names and features: leaf (and subleaf), register.
enum class CpuidWord : uint8_t {
  k1Eax,  // family, model, stepping
  k1Ecx,
  k1Edx,
  k7Ebx,
  k7Ecx,
  k7Edx,
  k7_1Eax,
  k7_1Edx,
  kD_1Eax,
  k14Ebx,
  k19Ebx,
  kExtended1Ecx,  // leaf 80000001
  kExtended1Edx,
  kExtended8Ebx,
  kXcr0,  // not CPUID: what the operating system saves (XGETBV)
  kCount
};

struct Cpuid {
  std::string vendor;  // "GenuineIntel"
  // Zero for leaves that the CPU does not have.
  std::array<uint32_t, static_cast<size_t>(CpuidWord::kCount)> words{};
  uint32_t operator[](CpuidWord word) const { return words[static_cast<size_t>(word)]; }
};

// Returns the features that CPU and operating system provide, without "+", in any order. Excludes
// AVX10, which only repeats features of AVX-512.
std::vector<std::string> x86_features(const Cpuid& cpuid);
// Returns LLVM's name, such as "znver4", or "generic" for an unknown CPU.
std::string x86_cpu_name(const Cpuid& cpuid);

// AArch64: from the text of /proc/cpuinfo (aarch64_cpu.cpp).

// Returns a name such as "neoverse-n1", or "generic" for a CPU unknown to LLVM. If there are
// several kinds of cores, uses the last one.
std::string aarch64_cpu_name(std::string_view cpuinfo);
// Returns the features without "+", in no order.
std::vector<std::string> aarch64_features(std::string_view cpuinfo);

}  // namespace attune
