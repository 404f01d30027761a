// SPDX-License-Identifier: Apache-2.0
// Names CPUs by implementer and part, two fields of MIDR_EL1 (Arm Architecture Reference Manual,
// D19.2) in /proc/cpuinfo; see host_arch.hpp.
#include "generator/compile/cpu/host_arch.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

namespace attune {
namespace {

struct Part {
  uint32_t implementer, part;
  const char* name;
};

constexpr uint32_t kArm = 0x41, kSamsung = 0x53;
constexpr Part kParts[] = {
    {kArm, 0xd02, "cortex-a34"},    {kArm, 0xd03, "cortex-a53"},
    {kArm, 0xd04, "cortex-a35"},    {kArm, 0xd05, "cortex-a55"},
    {kArm, 0xd06, "cortex-a65"},    {kArm, 0xd07, "cortex-a57"},
    {kArm, 0xd08, "cortex-a72"},    {kArm, 0xd09, "cortex-a73"},
    {kArm, 0xd0a, "cortex-a75"},    {kArm, 0xd0b, "cortex-a76"},
    {kArm, 0xd0c, "neoverse-n1"},   {kArm, 0xd0d, "cortex-a77"},
    {kArm, 0xd0e, "cortex-a76ae"},  {kArm, 0xd14, "cortex-r82ae"},
    {kArm, 0xd15, "cortex-r82"},    {kArm, 0xd40, "neoverse-v1"},
    {kArm, 0xd41, "cortex-a78"},    {kArm, 0xd42, "cortex-a78ae"},
    {kArm, 0xd43, "cortex-a65ae"},  {kArm, 0xd44, "cortex-x1"},
    {kArm, 0xd46, "cortex-a510"},   {kArm, 0xd47, "cortex-a710"},
    {kArm, 0xd48, "cortex-x2"},     {kArm, 0xd49, "neoverse-n2"},
    {kArm, 0xd4a, "neoverse-e1"},   {kArm, 0xd4b, "cortex-a78c"},
    {kArm, 0xd4c, "cortex-x1c"},    {kArm, 0xd4d, "cortex-a715"},
    {kArm, 0xd4e, "cortex-x3"},     {kArm, 0xd4f, "neoverse-v2"},
    {kArm, 0xd80, "cortex-a520"},   {kArm, 0xd81, "cortex-a720"},
    {kArm, 0xd82, "cortex-x4"},     {kArm, 0xd83, "neoverse-v3ae"},
    {kArm, 0xd84, "neoverse-v3"},   {kArm, 0xd85, "cortex-x925"},
    {kArm, 0xd87, "cortex-a725"},   {kArm, 0xd88, "cortex-a520ae"},
    {kArm, 0xd89, "cortex-a720ae"}, {kArm, 0xd8e, "neoverse-n3"},
    {0x42, 0x0a1, "thunderxt88"},  // Broadcom
    {0x42, 0x0af, "thunderx2t99"},  {0x42, 0x516, "thunderx2t99"},
    {0x43, 0x0a1, "thunderxt88"},  // Cavium
    {0x43, 0x0af, "thunderx2t99"},  {0x43, 0x516, "thunderx2t99"},
    {0x46, 0x001, "a64fx"},    // Fujitsu
    {0x48, 0xd01, "tsv110"},   // HiSilicon
    {0x4e, 0x004, "carmel"},   // NVIDIA
    {0x51, 0x001, "oryon-1"},  // Qualcomm
    {0x51, 0x201, "kryo"},          {0x51, 0x205, "kryo"},
    {0x51, 0x211, "kryo"},          {0x51, 0x800, "cortex-a73"},
    {0x51, 0x801, "cortex-a73"},    {0x51, 0x802, "cortex-a75"},
    {0x51, 0x803, "cortex-a75"},    {0x51, 0x804, "cortex-a76"},
    {0x51, 0x805, "cortex-a76"},    {0x51, 0xc00, "falkor"},
    {0x51, 0xc01, "saphira"},       {0x6d, 0xd49, "neoverse-n2"},  // Microsoft
    {0xc0, 0xac3, "ampere1"},                                      // Ampere
    {0xc0, 0xac4, "ampere1a"},      {0xc0, 0xac5, "ampere1b"},
};

// Calls visit(key, value) for each line "key : value".
template <class Visit>
void each_line(std::string_view text, Visit visit) {
  const auto trimmed = [](std::string_view part) {
    constexpr const char* kBlanks = " \t\r";
    const size_t begin = part.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return std::string_view();
    return part.substr(begin, part.find_last_not_of(kBlanks) - begin + 1);
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos)
      visit(trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  }
}

std::optional<uint32_t> number_of(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  uint32_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string aarch64_cpu_name(std::string_view cpuinfo) {
  std::optional<uint32_t> implementer, variant, part;
  std::string_view hardware;
  each_line(cpuinfo, [&](std::string_view key, std::string_view value) {
    if (key == "CPU implementer") implementer = number_of(value);
    if (key == "CPU variant") variant = number_of(value);
    if (key == "CPU part") part = number_of(value);
    if (key == "Hardware") hardware = value;
  });
  // On these SoCs /proc/cpuinfo shows the core that happens to run the process.
  if (implementer == kArm && (hardware.ends_with("MSM8994") || hardware.ends_with("MSM8996")))
    return "cortex-a53";
  if (implementer == kSamsung) return variant == 1U && part == 0x003U ? "exynos-m4" : "exynos-m3";
  for (const Part& known : kParts)
    if (known.implementer == implementer && known.part == part) return known.name;
  return "generic";
}

std::vector<std::string> aarch64_features(std::string_view cpuinfo) {
  constexpr struct {
    const char* linux;
    const char* llvm;
  } kFeatures[] = {{"asimd", "neon"},  {"fp", "fp-armv8"}, {"crc32", "crc"},
                   {"atomics", "lse"}, {"sve", "sve"},     {"sve2", "sve2"}};
  std::optional<std::string_view> line;
  each_line(cpuinfo, [&](std::string_view key, std::string_view value) {
    if (key == "Features" && !line) line = value;
  });
  const auto has = [&](std::string_view feature) {
    const std::string padded = " " + std::string(line.value_or("")) + " ";
    return padded.find(" " + std::string(feature) + " ") != std::string::npos;
  };
  std::vector<std::string> features;
  for (const auto& feature : kFeatures)
    if (has(feature.linux)) features.emplace_back(feature.llvm);
  if (has("aes") && has("pmull") && has("sha1") && has("sha2")) features.emplace_back("crypto");
  return features;
}

}  // namespace attune
