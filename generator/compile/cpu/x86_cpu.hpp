// SPDX-License-Identifier: Apache-2.0
// Names an x86-64 CPU and its features as LLVM 19 does, from the results of the CPUID instruction.
// Stored kernels are found by these names, so they must remain LLVM's names. Used by host_arch.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace attune {

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

}  // namespace attune
