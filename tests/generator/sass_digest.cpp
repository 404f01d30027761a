// SPDX-License-Identifier: Apache-2.0
// See sass_digest.hpp.
#include "tests/generator/sass_digest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <vector>

#include "generator/compile/elf_file.hpp"
#include "generator/compile/image_info.hpp"
#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"

namespace attune::testing {
namespace {

constexpr std::string_view kText = ".text.", kConstant = ".nv.constant", kGroup = " | ";
constexpr std::string_view kVersionLine = "# NVRTC ";

std::string short_code(std::string_view bytes) { return xxh3_128_hex(bytes).substr(0, 16); }

// Returns the barriers that a function uses. ptxas writes them into the function's .nv.info as
// attribute 0x4c with its value in the third byte; before CUDA 13 bits 20 to 26 of the section's
// flags held them.
int barriers_of(const ElfFile& elf, const Elf64_Shdr& code, std::string_view function) {
  constexpr uint8_t kFormatPayload = 0x04, kAttributeBarriers = 0x4c;
  for (const Elf64_Shdr& section : elf.sections()) {
    if (elf.name(section) != ".nv.info." + std::string(function)) continue;
    const std::string_view bytes = elf.contents(section).value_or("");
    for (size_t at = 0; bytes.size() - at >= 4;) {
      uint8_t format, attribute;
      uint16_t value;
      std::memcpy(&format, bytes.data() + at, 1);
      std::memcpy(&attribute, bytes.data() + at + 1, 1);
      std::memcpy(&value, bytes.data() + at + 2, 2);
      at += 4;
      if (format != kFormatPayload && attribute == kAttributeBarriers) return value & 0xff;
      if (format == kFormatPayload) at += std::min<size_t>(value, bytes.size() - at);
    }
  }
  return static_cast<int>(code.sh_flags >> 20 & 0x7f);
}

std::vector<std::string> groups_of(std::string_view line) {
  std::vector<std::string> groups;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find(kGroup, at), line.size());
    groups.emplace_back(line.substr(at, end - at));
    at = end + kGroup.size();
  }
  return groups;
}

std::vector<std::string> words_of(const std::string& group) {
  std::istringstream text(group);
  return {std::istream_iterator<std::string>(text), {}};
}

// Appends the differing words of two groups by name.
void add_differences(const std::string& accepted, const std::string& found,
                     const std::vector<std::string>& names, std::vector<std::string>* all) {
  std::vector<std::string> before = words_of(accepted), now = words_of(found);
  before.resize(names.size());
  now.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (before[i] == now[i]) continue;
    const bool is_digest = before[i].size() >= 8 && now[i].size() >= 8;
    all->push_back(is_digest ? names[i]
                             : fmt::format("{}: {}, now {}", names[i], before[i], now[i]));
  }
}

}  // namespace

std::optional<std::string> sass_digest(std::string_view cubin) {
  const std::optional<ElfFile> elf = ElfFile::open(cubin);
  if (!elf || elf->header().e_machine != EM_CUDA) return std::nullopt;
  std::vector<std::string> functions, constants;
  for (const Elf64_Shdr& section : elf->sections()) {
    const std::string_view name = elf->name(section);
    const std::optional<std::string_view> bytes = elf->contents(section);
    if (!bytes) return std::nullopt;
    // Bank 0 holds the arguments and is zeros in the file.
    // Bank 0 holds a launch's parameters. Bank 4 holds addresses of variables, filled in when the
    // image is loaded: one for each constexpr of the source, read or not.
    if (name.starts_with(kConstant) && !name.starts_with(".nv.constant0") &&
        !name.starts_with(".nv.constant4"))
      constants.push_back(short_code(*bytes));
    if (!name.starts_with(kText)) continue;
    const std::string_view function = name.substr(kText.size());
    const ImageInfo info = read_image_info(cubin, function).value_or(ImageInfo{});
    functions.push_back(fmt::format("{} {} {} {}", short_code(*bytes), info.registers,
                                    info.static_shared_bytes,
                                    barriers_of(*elf, section, function)));
  }
  if (functions.empty()) return std::nullopt;
  std::sort(functions.begin(), functions.end());
  std::sort(constants.begin(), constants.end());
  if (!constants.empty())
    functions.push_back(fmt::format("constants {}", fmt::join(constants, " ")));
  return fmt::format("{}", fmt::join(functions, kGroup));
}

std::string digest_line(const MatrixKernel& kernel, std::string_view cubin) {
  const std::optional<std::string> digest = sass_digest(cubin);
  if (!digest)
    throw Error(ErrorCode::kInternal, kernel.name() + ": the compiler's output is not a cubin");
  return line_of_code(kernel, *digest);
}

std::string line_of_code(const MatrixKernel& kernel, std::string_view code) {
  const Resources needed =
      kernel.kernel_template->resources(kernel.spec, kernel.arch, kernel.config);
  return fmt::format("{} {}{}{}", kernel.config_digest(), needed.shared_bytes, kGroup, code);
}

std::string line_difference(std::string_view accepted, std::string_view found) {
  if (accepted == found) return {};
  std::vector<std::string> before = groups_of(accepted), now = groups_of(found), differences;
  add_differences(before[0], now[0], {"default config", "shared memory of a launch"}, &differences);
  before.erase(before.begin());
  now.erase(now.begin());
  if (before.size() != now.size()) {
    differences.push_back(fmt::format("functions: {}, now {}", before.size(), now.size()));
    return fmt::format("{}", fmt::join(differences, "; "));
  }
  // Groups are sorted by their digests, so a changed one may have moved: pair those without an
  // equal.
  const std::vector<std::string> old = before;
  for (const std::string& group : old)
    if (const auto same = std::find(now.begin(), now.end(), group); same != now.end()) {
      now.erase(same);
      before.erase(std::find(before.begin(), before.end(), group));
    }
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].starts_with("constants ") != now[i].starts_with("constants "))
      differences.emplace_back("constants");
    else if (before[i].starts_with("constants "))
      differences.emplace_back("constants");
    else
      add_differences(before[i], now[i],
                      {"instruction bytes", "registers", "shared memory", "barriers"},
                      &differences);
  }
  return fmt::format("{}", fmt::join(differences, "; "));
}

std::string nvrtc_build() {
  // The head of PTX names the tools: "// Cuda compilation tools, release 13.0, V13.0.88".
  const std::string ptx = nvrtc_ptx(
      {"extern \"C\" __global__ void attune_kernel() {}\n", "version.cu"}, parse_arch("sm_80"));
  std::smatch found;
  if (!std::regex_search(ptx, found, std::regex("V([0-9]+\\.[0-9]+\\.[0-9]+)"))) return "unknown";
  return found[1];
}

AcceptedDigests read_accepted_digests(const std::string& path) {
  AcceptedDigests digests;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kVersionLine)) digests.nvrtc = line.substr(kVersionLine.size());
    if (line.empty() || line[0] == '#') continue;
    const size_t end = line.find(' ', line.find(' ', line.find(' ') + 1) + 1);
    if (end != std::string::npos) digests.lines[line.substr(0, end)] = line.substr(end + 1);
  }
  return digests;
}

void write_accepted_digests(const std::string& path, const AcceptedDigests& digests) {
  std::ofstream file(path, std::ios::binary);
  file << "# SPDX-License-Identifier: Apache-2.0\n"
          "# Machine code of kernels, written by compile_matrix_test; "
          "tests/generator/sass_digest.hpp says what a line holds.\n"
       << kVersionLine << digests.nvrtc << "\n";
  for (const auto& [key, line] : digests.lines) file << key << " " << line << "\n";
}

}  // namespace attune::testing
