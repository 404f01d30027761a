// SPDX-License-Identifier: Apache-2.0
// Names of CPUs are those of LLVM 19.1; see host_arch.hpp.
#include "generator/compile/cpu/host_arch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace attune {
namespace {

// CPU names, separated by spaces.
// clang-format off
constexpr std::string_view kX86Names =
    " alderlake amdfam10 arrowlake arrowlake-s athlon-fx athlon64 athlon64-sse3 atom barcelona "
    "bdver1 bdver2 bdver3 bdver4 bonnell broadwell btver1 btver2 cannonlake cascadelake "
    "clearwaterforest cooperlake core-avx-i core-avx2 core2 corei7 corei7-avx emeraldrapids "
    "goldmont goldmont-plus gracemont grandridge graniterapids graniterapids-d haswell "
    "icelake-client icelake-server ivybridge k8 k8-sse3 knl knm lunarlake meteorlake nehalem "
    "nocona opteron opteron-sse3 pantherlake penryn raptorlake rocketlake sandybridge "
    "sapphirerapids sierraforest silvermont skx skylake skylake-avx512 slm tigerlake tremont "
    "westmere x86-64 x86-64-v2 x86-64-v3 x86-64-v4 znver1 znver2 znver3 znver4 znver5 ";
constexpr std::string_view kAarch64Names =
    " a64fx ampere1 ampere1a ampere1b apple-a10 apple-a11 apple-a12 apple-a13 apple-a14 "
    "apple-a15 apple-a16 apple-a17 apple-a7 apple-a8 apple-a9 apple-m1 apple-m2 apple-m3 "
    "apple-m4 apple-s4 apple-s5 carmel cobalt-100 cortex-a34 cortex-a35 cortex-a510 cortex-a520 "
    "cortex-a520ae cortex-a53 cortex-a55 cortex-a57 cortex-a65 cortex-a65ae cortex-a710 "
    "cortex-a715 cortex-a72 cortex-a720 cortex-a720ae cortex-a725 cortex-a73 cortex-a75 "
    "cortex-a76 cortex-a76ae cortex-a77 cortex-a78 cortex-a78ae cortex-a78c cortex-r82 "
    "cortex-r82ae cortex-x1 cortex-x1c cortex-x2 cortex-x3 cortex-x4 cortex-x925 cyclone "
    "exynos-m3 exynos-m4 exynos-m5 falkor generic grace kryo neoverse-512tvb neoverse-e1 "
    "neoverse-n1 neoverse-n2 neoverse-n3 neoverse-v1 neoverse-v2 neoverse-v3 neoverse-v3ae "
    "oryon-1 saphira thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 thunderxt88 "
    "tsv110 ";
// clang-format on

#if defined(__x86_64__)
// Reads the CPUID words of this CPU.
Cpuid read_cpuid() {
  struct Registers {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  };
  const auto ask = [](uint32_t leaf, uint32_t subleaf, bool is_there) {
    Registers r;
    if (is_there) __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
    return r;
  };
  using Word = CpuidWord;
  Cpuid cpuid;
  const auto put = [&](Word word, uint32_t value) {
    cpuid.words[static_cast<size_t>(word)] = value;
  };
  const Registers zero = ask(0, 0, true), extended = ask(0x80000000, 0, true);
  char vendor[12];
  std::memcpy(vendor, &zero.ebx, 4);
  std::memcpy(vendor + 4, &zero.edx, 4);
  std::memcpy(vendor + 8, &zero.ecx, 4);
  cpuid.vendor.assign(vendor, sizeof vendor);
  const uint32_t last = zero.eax, last_extended = extended.eax;
  const Registers one = ask(1, 0, last >= 1), seven = ask(7, 0, last >= 7);
  const Registers seven_1 = ask(7, 1, last >= 7 && seven.eax >= 1);
  const Registers extended_1 = ask(0x80000001, 0, last_extended >= 0x80000001);
  put(Word::k1Eax, one.eax);
  put(Word::k1Ecx, one.ecx);
  put(Word::k1Edx, one.edx);
  put(Word::k7Ebx, seven.ebx);
  put(Word::k7Ecx, seven.ecx);
  put(Word::k7Edx, seven.edx);
  put(Word::k7_1Eax, seven_1.eax);
  put(Word::k7_1Edx, seven_1.edx);
  put(Word::kD_1Eax, ask(0xd, 1, last >= 0xd).eax);
  put(Word::k14Ebx, ask(0x14, 0, last >= 0x14).ebx);
  put(Word::k19Ebx, ask(0x19, 0, last >= 0x19).ebx);
  put(Word::kExtended1Ecx, extended_1.ecx);
  put(Word::kExtended1Edx, extended_1.edx);
  put(Word::kExtended8Ebx, ask(0x80000008, 0, last_extended >= 0x80000008).ebx);
  if ((one.ecx >> 27 & 1U) != 0) {  // XGETBV is there
    uint32_t low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    put(Word::kXcr0, low);
  }
  return cpuid;
}
#endif

struct HostCpu {
  std::string name;
  std::vector<std::string> features;
};

HostCpu read_host_cpu() {
#if defined(__x86_64__)
  const Cpuid cpuid = read_cpuid();
  return {x86_cpu_name(cpuid), x86_features(cpuid)};
#elif defined(__aarch64__)
  std::ifstream file("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return {aarch64_cpu_name(text), aarch64_features(text)};
#else
#error "CPUs of this kind have no names here; add them as x86_cpu.cpp has them"
#endif
}

int widest_vector_bytes(const Arch& arch) {
  if (arch.has_feature("+avx512f") && arch.has_feature("+avx512vl") &&
      arch.has_feature("+avx512bw"))
    return 64;
  if (arch.has_feature("+avx2") && arch.has_feature("+fma")) return 32;
  return 16;
}

}  // namespace

Arch detect_host_arch() {
  const HostCpu cpu = read_host_cpu();
  Arch arch;
  arch.target = Target::kCpu;
  arch.cpu = cpu.name;
  for (const std::string& feature : cpu.features) arch.features.push_back("+" + feature);
  std::sort(arch.features.begin(), arch.features.end());
  arch.vector_bytes = widest_vector_bytes(arch);
  return arch;
}

bool is_cpu_name(std::string_view name) {
  const std::string word = " " + std::string(name) + " ";
  const bool is_word = !name.empty() && name.find(' ') == std::string_view::npos;
  return is_word &&
         (kX86Names.find(word) != std::string_view::npos ||
          kAarch64Names.find(word) != std::string_view::npos || name == read_host_cpu().name);
}

}  // namespace attune
