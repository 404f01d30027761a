// SPDX-License-Identifier: Apache-2.0
// Features are what the CPU and the operating system grant here, not what the CPU's name promises;
// see host_arch.hpp.
#include "runtime/cpu/host_arch.hpp"

#include <fmt/format.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/AArch64TargetParser.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/X86TargetParser.h>

#include <algorithm>

namespace attune {
namespace {

int widest_vector_bytes(const Arch& arch) {
  if (arch.has_feature("+avx512f") && arch.has_feature("+avx512vl") &&
      arch.has_feature("+avx512bw"))
    return 64;
  if (arch.has_feature("+avx2") && arch.has_feature("+fma")) return 32;
  return 16;
}

}  // namespace

Arch detect_host_arch() {
  Arch arch;
  arch.target = Target::kCpu;
  arch.cpu = llvm::sys::getHostCPUName().str();
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    // AVX10 names what the AVX-512 features beside it say one by one; clang warns of both together.
    const std::string name = feature.first().str();
    if (feature.second && name.rfind("avx10", 0) != 0)
      arch.features.push_back(fmt::format("+{}", name));
  }
  std::sort(arch.features.begin(), arch.features.end());
  arch.vector_bytes = widest_vector_bytes(arch);
  return arch;
}

bool is_cpu_name(std::string_view name) {
  constexpr bool kOf64Bits = true;
  return llvm::X86::parseArchX86(name, kOf64Bits) != llvm::X86::CK_None ||
         llvm::AArch64::parseCpu(name).has_value() ||
         llvm::StringRef(name) == llvm::sys::getHostCPUName();
}

}  // namespace attune
