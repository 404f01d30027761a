// SPDX-License-Identifier: Apache-2.0
// Prints and compares digests of the compile matrix's kernels. Used by same_code.sh.
//   kernel_digests sources [STEP]
//     prints a line per kernel, with STEP per golden case and for one kernel in STEP: key, tab,
//     digests of its config, and of its source and NVRTC's options
//   kernel_digests code < KEYS
//     compiles the kernels with these keys: key, tab, and a line as in
//     tests/golden/sass_digests.txt
//   kernel_digests texts FOLDER
//     writes the golden text of each golden case, a file each
//   kernel_digests compare THEN NOW
//     prints what differs between two outputs of `code`; returns 1 if anything does
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "tests/generator/kernel_lines.hpp"
#include "tests/generator/render/golden_cases.hpp"
#include "tests/generator/render/golden_text.hpp"
#include "tests/generator/sass_digest.hpp"

namespace attune {
namespace {

using testing::MatrixKernel;
using testing::print_lines;
using testing::source_of;

std::vector<MatrixKernel> kernels_by_key(const std::function<bool(const std::string&)>& is_wanted) {
  std::vector<MatrixKernel> kernels = testing::golden_cuda_kernels();
  std::erase_if(kernels, [&](const MatrixKernel& kernel) { return !is_wanted(kernel.key()); });
  for (MatrixKernel& kernel : testing::matrix_kernels(all_templates(), is_wanted))
    kernels.push_back(std::move(kernel));
  return kernels;
}

std::string source_line(const MatrixKernel& kernel) {
  const std::string compiled_from =
      source_digest(source_of(kernel)) + open_nvrtc_compiler()->options(kernel.arch);
  return kernel.config_digest() + " " + xxh3_128_hex(compiled_from);
}

std::string code_line(const MatrixKernel& kernel) try {
  return testing::digest_line(kernel,
                              open_nvrtc_compiler()->compile(source_of(kernel), kernel.arch).bytes);
} catch (const Error& error) {
  return testing::refused_line(error);
}

void print_sources(uint32_t step) {
  print_lines(kernels_by_key([&](const std::string& key) { return testing::in_sample(key, step); }),
              source_line);
}

void print_code() {
  std::set<std::string> keys;
  for (std::string key; std::getline(std::cin, key);) keys.insert(key);
  print_lines(kernels_by_key([&](const std::string& key) { return keys.contains(key); }),
              code_line);
}

void write_texts(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (const GoldenCase& c : kGoldenCases) {
    const KernelTemplate& t = template_by_name(c.template_name);
    const Problem problem = parse_problem(c.problem);
    const Arch arch = parse_arch(c.arch);
    const Config config =
        t.default_config(spec_of(problem), arch, shape_of(problem), typical_device(arch).facts);
    std::ofstream(folder / (std::string(c.name) + ".txt"))
        << testing::golden_text(render(t, spec_of(problem), arch, config).text);
  }
}

std::map<std::string, std::string> lines_by_key(const std::string& path) {
  std::map<std::string, std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const size_t tab = line.find('\t'); tab != std::string::npos)
      lines[line.substr(0, tab)] = line.substr(tab + 1);
  return lines;
}

int compare(const std::string& then_path, const std::string& now_path) {
  const std::map<std::string, std::string> then = lines_by_key(then_path),
                                           now = lines_by_key(now_path);
  std::map<std::string, std::string> names;
  for (const MatrixKernel& kernel :
       kernels_by_key([&](const std::string& key) { return now.contains(key); }))
    names[kernel.key()] = kernel.name();
  size_t different = 0;
  for (const auto& [key, line] : now) {
    const auto before = then.find(key);
    if (before == then.end()) continue;
    const std::string difference = testing::line_difference(before->second, line);
    if (difference.empty()) continue;
    std::cout << key << ": " << difference << "\n  " << names[key] << "\n";
    ++different;
  }
  std::cout << fmt::format("{} of {} compiled kernels have other machine code\n", different,
                           now.size());
  return different > 0 ? 1 : 0;
}

int run(const std::vector<std::string>& words) {
  const std::string verb = words.empty() ? "" : words[0];
  if (verb == "texts" && words.size() == 2) {
    write_texts(words[1]);
    return 0;
  }
  if (open_nvrtc_compiler() == nullptr) {
    std::cerr << nvrtc_advice() << "\n";
    return 77;
  }
  if (verb == "sources" && words.size() <= 2) {
    const auto step = words.size() > 1 ? std::strtoul(words[1].c_str(), nullptr, 10) : 1;
    print_sources(std::max(1U, static_cast<uint32_t>(step)));
  } else if (verb == "code" && words.size() == 1) {
    print_code();
  } else if (verb == "compare" && words.size() == 3) {
    return compare(words[1], words[2]);
  } else {
    std::cerr
        << "usage: kernel_digests sources [STEP] | code < KEYS | compare THEN NOW | texts FOLDER\n";
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace attune

int main(int argc, char** argv) { return attune::run({argv + 1, argv + argc}); }
