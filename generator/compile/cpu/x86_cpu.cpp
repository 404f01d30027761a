// SPDX-License-Identifier: Apache-2.0
// Tables of feature bits and models, from Intel's Software Developer's Manual, volume 2A, CPUID,
// and AMD's Architecture Programmer's Manual, volume 3, appendix E.
// tests/generator/cpu_names_test.cpp compares the names with LLVM 19.1.7; see host_arch.hpp.
#include "generator/compile/cpu/host_arch.hpp"

#include <algorithm>
#include <string_view>

namespace attune {
namespace {

using Word = CpuidWord;

// The register state that the operating system must save for a feature.
enum class Saved : uint8_t { kAny, kAvx, kAvx512, kAmx };

struct Feature {  // the name is stored inside: a pointer would cost a relocation
  char name[20];
  Word word;
  uint8_t bit;
  Saved saved = Saved::kAny;
};

constexpr Feature kFeatures[] = {
    {"cx8", Word::k1Edx, 8},
    {"cmov", Word::k1Edx, 15},
    {"mmx", Word::k1Edx, 23},
    {"fxsr", Word::k1Edx, 24},
    {"sse", Word::k1Edx, 25},
    {"sse2", Word::k1Edx, 26},
    {"sse3", Word::k1Ecx, 0},
    {"pclmul", Word::k1Ecx, 1},
    {"ssse3", Word::k1Ecx, 9},
    {"fma", Word::k1Ecx, 12, Saved::kAvx},
    {"cx16", Word::k1Ecx, 13},
    {"sse4.1", Word::k1Ecx, 19},
    {"sse4.2", Word::k1Ecx, 20},
    {"crc32", Word::k1Ecx, 20},
    {"movbe", Word::k1Ecx, 22},
    {"popcnt", Word::k1Ecx, 23},
    {"aes", Word::k1Ecx, 25},
    {"xsave", Word::k1Ecx, 26, Saved::kAvx},
    {"avx", Word::k1Ecx, 28, Saved::kAvx},
    {"f16c", Word::k1Ecx, 29, Saved::kAvx},
    {"rdrnd", Word::k1Ecx, 30},
    {"fsgsbase", Word::k7Ebx, 0},
    {"sgx", Word::k7Ebx, 2},
    {"bmi", Word::k7Ebx, 3},
    {"avx2", Word::k7Ebx, 5, Saved::kAvx},
    {"bmi2", Word::k7Ebx, 8},
    {"invpcid", Word::k7Ebx, 10},
    {"rtm", Word::k7Ebx, 11},
    {"avx512f", Word::k7Ebx, 16, Saved::kAvx512},
    {"evex512", Word::k7Ebx, 16, Saved::kAvx512},
    {"avx512dq", Word::k7Ebx, 17, Saved::kAvx512},
    {"rdseed", Word::k7Ebx, 18},
    {"adx", Word::k7Ebx, 19},
    {"avx512ifma", Word::k7Ebx, 21, Saved::kAvx512},
    {"clflushopt", Word::k7Ebx, 23},
    {"clwb", Word::k7Ebx, 24},
    {"avx512cd", Word::k7Ebx, 28, Saved::kAvx512},
    {"sha", Word::k7Ebx, 29},
    {"avx512bw", Word::k7Ebx, 30, Saved::kAvx512},
    {"avx512vl", Word::k7Ebx, 31, Saved::kAvx512},
    {"avx512vbmi", Word::k7Ecx, 1, Saved::kAvx512},
    {"pku", Word::k7Ecx, 4},
    {"waitpkg", Word::k7Ecx, 5},
    {"avx512vbmi2", Word::k7Ecx, 6, Saved::kAvx512},
    {"shstk", Word::k7Ecx, 7},
    {"gfni", Word::k7Ecx, 8},
    {"vaes", Word::k7Ecx, 9, Saved::kAvx},
    {"vpclmulqdq", Word::k7Ecx, 10, Saved::kAvx},
    {"avx512vnni", Word::k7Ecx, 11, Saved::kAvx512},
    {"avx512bitalg", Word::k7Ecx, 12, Saved::kAvx512},
    {"avx512vpopcntdq", Word::k7Ecx, 14, Saved::kAvx512},
    {"rdpid", Word::k7Ecx, 22},
    {"kl", Word::k7Ecx, 23},
    {"cldemote", Word::k7Ecx, 25},
    {"movdiri", Word::k7Ecx, 27},
    {"movdir64b", Word::k7Ecx, 28},
    {"enqcmd", Word::k7Ecx, 29},
    {"uintr", Word::k7Edx, 5},
    {"avx512vp2intersect", Word::k7Edx, 8, Saved::kAvx512},
    {"serialize", Word::k7Edx, 14},
    {"tsxldtrk", Word::k7Edx, 16},
    {"pconfig", Word::k7Edx, 18},
    {"amx-bf16", Word::k7Edx, 22, Saved::kAmx},
    {"avx512fp16", Word::k7Edx, 23, Saved::kAvx512},
    {"amx-tile", Word::k7Edx, 24, Saved::kAmx},
    {"amx-int8", Word::k7Edx, 25, Saved::kAmx},
    {"sha512", Word::k7_1Eax, 0},
    {"sm3", Word::k7_1Eax, 1},
    {"sm4", Word::k7_1Eax, 2},
    {"raoint", Word::k7_1Eax, 3},
    {"avxvnni", Word::k7_1Eax, 4, Saved::kAvx},
    {"avx512bf16", Word::k7_1Eax, 5, Saved::kAvx512},
    {"cmpccxadd", Word::k7_1Eax, 7},
    {"amx-fp16", Word::k7_1Eax, 21, Saved::kAmx},
    {"hreset", Word::k7_1Eax, 22},
    {"avxifma", Word::k7_1Eax, 23, Saved::kAvx},
    {"avxvnniint8", Word::k7_1Edx, 4, Saved::kAvx},
    {"avxneconvert", Word::k7_1Edx, 5, Saved::kAvx},
    {"amx-complex", Word::k7_1Edx, 8, Saved::kAmx},
    {"avxvnniint16", Word::k7_1Edx, 10, Saved::kAvx},
    {"prefetchi", Word::k7_1Edx, 14},
    {"usermsr", Word::k7_1Edx, 15},
    // One CPUID bit covers all of APX.
    {"ccmp", Word::k7_1Edx, 21},
    {"cf", Word::k7_1Edx, 21},
    {"egpr", Word::k7_1Edx, 21},
    {"ndd", Word::k7_1Edx, 21},
    {"ppx", Word::k7_1Edx, 21},
    {"push2pop2", Word::k7_1Edx, 21},
    {"xsaveopt", Word::kD_1Eax, 0, Saved::kAvx},
    {"xsavec", Word::kD_1Eax, 1, Saved::kAvx},
    {"xsaves", Word::kD_1Eax, 3, Saved::kAvx},
    {"ptwrite", Word::k14Ebx, 4},
    {"widekl", Word::k19Ebx, 2},
    {"sahf", Word::kExtended1Ecx, 0},
    {"lzcnt", Word::kExtended1Ecx, 5},
    {"sse4a", Word::kExtended1Ecx, 6},
    {"prfchw", Word::kExtended1Ecx, 8},
    {"xop", Word::kExtended1Ecx, 11, Saved::kAvx},
    {"lwp", Word::kExtended1Ecx, 15},
    {"fma4", Word::kExtended1Ecx, 16, Saved::kAvx},
    {"tbm", Word::kExtended1Ecx, 21},
    {"mwaitx", Word::kExtended1Ecx, 29},
    {"64bit", Word::kExtended1Edx, 29},
    {"clzero", Word::kExtended8Ebx, 0},
    {"rdpru", Word::kExtended8Ebx, 4},
    {"wbnoinvd", Word::kExtended8Ebx, 9},
};

bool bit(const Cpuid& cpuid, Word word, int place) { return (cpuid[word] >> place & 1U) != 0; }

bool saves(const Cpuid& cpuid, Saved what) {
  constexpr uint32_t kAvx = 0x6, kAvx512 = 0xe0, kAmx = 0x60000;  // of XCR0
  const bool has_xsave = bit(cpuid, Word::k1Ecx, 27);
  const auto all = [&](uint32_t mask) { return (cpuid[Word::kXcr0] & mask) == mask; };
  const bool avx = has_xsave && bit(cpuid, Word::k1Ecx, 28) && all(kAvx);
  switch (what) {
    case Saved::kAny:
      return true;
    case Saved::kAvx:
      return avx;
    case Saved::kAvx512:
      return avx && all(kAvx512);
    case Saved::kAmx:
      return has_xsave && all(kAmx);
  }
  return false;
}

bool has(const Cpuid& cpuid, const Feature& feature) {
  return bit(cpuid, feature.word, feature.bit) && saves(cpuid, feature.saved);
}

bool has(const Cpuid& cpuid, std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kFeatures), std::end(kFeatures),
                   [&](const Feature& f) { return std::string_view(f.name) == name; });
  return found != std::end(kFeatures) && has(cpuid, *found);
}

struct Models {
  uint8_t first, last;
  char name[18];
};

const char* name_in(const Models* begin, const Models* end, int model) {
  const Models* const found = std::find_if(
      begin, end, [&](const Models& m) { return m.first <= model && model <= m.last; });
  return found == end ? nullptr : found->name;
}

constexpr Models kIntelModels[] = {
    // of family 6
    {0x0f, 0x0f, "core2"},
    {0x16, 0x16, "core2"},
    {0x17, 0x17, "penryn"},
    {0x1a, 0x1a, "nehalem"},
    {0x1c, 0x1c, "bonnell"},
    {0x1d, 0x1d, "penryn"},
    {0x1e, 0x1f, "nehalem"},
    {0x25, 0x25, "westmere"},
    {0x26, 0x27, "bonnell"},
    {0x2a, 0x2a, "sandybridge"},
    {0x2c, 0x2c, "westmere"},
    {0x2d, 0x2d, "sandybridge"},
    {0x2e, 0x2e, "nehalem"},
    {0x2f, 0x2f, "westmere"},
    {0x35, 0x36, "bonnell"},
    {0x37, 0x37, "silvermont"},
    {0x3a, 0x3a, "ivybridge"},
    {0x3c, 0x3c, "haswell"},
    {0x3d, 0x3d, "broadwell"},
    {0x3e, 0x3e, "ivybridge"},
    {0x3f, 0x3f, "haswell"},
    {0x45, 0x46, "haswell"},
    {0x47, 0x47, "broadwell"},
    {0x4a, 0x4a, "silvermont"},
    {0x4c, 0x4d, "silvermont"},
    {0x4e, 0x4e, "skylake"},
    {0x4f, 0x4f, "broadwell"},
    {0x56, 0x56, "broadwell"},
    {0x57, 0x57, "knl"},
    {0x5a, 0x5a, "silvermont"},
    {0x5c, 0x5c, "goldmont"},
    {0x5d, 0x5d, "silvermont"},
    {0x5e, 0x5e, "skylake"},
    {0x5f, 0x5f, "goldmont"},
    {0x66, 0x66, "cannonlake"},
    {0x6a, 0x6a, "icelake-server"},
    {0x6c, 0x6c, "icelake-server"},
    {0x7a, 0x7a, "goldmont-plus"},
    {0x7d, 0x7e, "icelake-client"},
    {0x85, 0x85, "knm"},
    {0x86, 0x86, "tremont"},
    {0x8a, 0x8a, "tremont"},
    {0x8c, 0x8d, "tigerlake"},
    {0x8e, 0x8e, "skylake"},
    {0x8f, 0x8f, "sapphirerapids"},
    {0x96, 0x96, "tremont"},
    {0x97, 0x97, "alderlake"},
    {0x9a, 0x9a, "alderlake"},
    {0x9c, 0x9c, "tremont"},
    {0x9e, 0x9e, "skylake"},
    {0xa5, 0xa6, "skylake"},
    {0xa7, 0xa7, "rocketlake"},
    {0xaa, 0xaa, "alderlake"},
    {0xac, 0xac, "alderlake"},
    {0xad, 0xad, "graniterapids"},
    {0xae, 0xae, "graniterapids-d"},
    {0xaf, 0xaf, "sierraforest"},
    {0xb6, 0xb6, "grandridge"},
    {0xb7, 0xb7, "alderlake"},
    {0xba, 0xba, "alderlake"},
    {0xbd, 0xbd, "arrowlake-s"},
    {0xbe, 0xbf, "alderlake"},
    {0xc5, 0xc5, "arrowlake"},
    {0xc6, 0xc6, "arrowlake-s"},
    {0xcc, 0xcc, "pantherlake"},
    {0xcf, 0xcf, "sapphirerapids"},
    {0xdd, 0xdd, "clearwaterforest"},
};

constexpr Models kAmdFamily15[] = {
    {0x02, 0x02, "bdver2"}, {0x10, 0x1f, "bdver2"}, {0x30, 0x3f, "bdver3"},
    {0x60, 0x7f, "bdver4"}, {0x00, 0xff, "bdver1"},
};
constexpr Models kAmdFamily17[] = {
    {0x30, 0x3f, "znver2"}, {0x47, 0x47, "znver2"}, {0x60, 0x7f, "znver2"},
    {0x84, 0x87, "znver2"}, {0x90, 0xaf, "znver2"}, {0x00, 0xff, "znver1"},
};
constexpr Models kAmdFamily19[] = {
    {0x10, 0x1f, "znver4"},
    {0x60, 0x7f, "znver4"},
    {0xa0, 0xaf, "znver4"},
    {0x00, 0xff, "znver3"},
};

// Returns the newest CPU whose features a family-6 CPU has. Used for models that the table lacks.
const char* intel_name_by_features(const Cpuid& cpuid) {
  constexpr struct {
    const char* feature;
    const char* name;
  } kNewestFirst[] = {
      {"avx512vp2intersect", "tigerlake"},
      {"avx512vbmi2", "icelake-client"},
      {"avx512vbmi", "cannonlake"},
      {"avx512bf16", "cooperlake"},
      {"avx512vnni", "cascadelake"},
      {"avx512vl", "skylake-avx512"},
      {"clflushopt", "skylake"},
      {"adx", "broadwell"},
      {"avx2", "haswell"},
      {"avx", "sandybridge"},
      {"sse4.2", "nehalem"},
      {"sse4.1", "penryn"},
      {"ssse3", "core2"},
      {"64bit", "core2"},
  };
  for (const auto& [feature, name] : kNewestFirst) {
    if (!has(cpuid, feature)) continue;
    const std::string_view small_core = feature;  // the Atom of that time
    if (small_core == "clflushopt" && has(cpuid, "sha")) return "goldmont";
    if (small_core == "sse4.2" && has(cpuid, "movbe")) return "silvermont";
    if (small_core == "ssse3" && has(cpuid, "movbe")) return "bonnell";
    return name;
  }
  return "generic";
}

const char* intel_name(const Cpuid& cpuid, int family, int model) {
  constexpr int kServers = 0x55;  // three generations share this number
  if (family == 15) return has(cpuid, "64bit") ? "nocona" : "generic";
  if (family != 6) return "generic";
  if (model == kServers)
    return has(cpuid, "avx512bf16")   ? "cooperlake"
           : has(cpuid, "avx512vnni") ? "cascadelake"
                                      : "skylake-avx512";
  const char* const known = name_in(std::begin(kIntelModels), std::end(kIntelModels), model);
  return known != nullptr ? known : intel_name_by_features(cpuid);
}

const char* amd_name(const Cpuid& cpuid, int family, int model) {
  switch (family) {
    case 0x0f:
      return has(cpuid, "sse3") ? "k8-sse3" : "k8";
    case 0x10:
      return "amdfam10";
    case 0x14:
      return "btver1";
    case 0x15:
      return name_in(std::begin(kAmdFamily15), std::end(kAmdFamily15), model);
    case 0x16:
      return "btver2";
    case 0x17:
      return name_in(std::begin(kAmdFamily17), std::end(kAmdFamily17), model);
    case 0x19:
      return name_in(std::begin(kAmdFamily19), std::end(kAmdFamily19), model);
    case 0x1a:
      return "znver5";
    default:
      return "generic";
  }
}

}  // namespace

std::vector<std::string> x86_features(const Cpuid& cpuid) {
  std::vector<std::string> features;
  for (const Feature& feature : kFeatures)
    if (has(cpuid, feature)) features.emplace_back(feature.name);
  return features;
}

std::string x86_cpu_name(const Cpuid& cpuid) {
  const uint32_t signature = cpuid[Word::k1Eax];
  int family = static_cast<int>(signature >> 8 & 0xfU);
  int model = static_cast<int>(signature >> 4 & 0xfU);
  if (family == 6 || family == 0xf) model += static_cast<int>(signature >> 12 & 0xf0U);
  if (family == 0xf) family += static_cast<int>(signature >> 20 & 0xffU);
  if (cpuid.vendor == "GenuineIntel") return intel_name(cpuid, family, model);
  if (cpuid.vendor == "AuthenticAMD") return amd_name(cpuid, family, model);
  return "generic";
}

}  // namespace attune
