// SPDX-License-Identifier: Apache-2.0
// Prints digests of the machine code of random kernels, with any legal config. Kernels of op
// prefill have any score features and programs (tuner/fuzz/draw.hpp). Used by same_code.sh, and by
// hand while a template changes:
//   drawn_digests [--templates FOLDER] [--texts FOLDER] TEMPLATE ARCH PROBLEM ...
//     the default config of each problem: key, tab, a line as in tests/golden/sass_digests.txt.
//     "PROBLEM;KNOB=VALUE,..." sets knobs that differ from the default.
//   drawn_digests [--templates FOLDER] [--texts FOLDER] TEMPLATE ARCH FIRST COUNT
//     the same for random kernels: draws COUNT kernels from seed FIRST on.
//     ARCH is "cpu" for the CPU of this machine. FOLDER holds templates instead of the built-in
//     ones, and TEXTS gets each kernel's source. Equal arguments draw equal kernels, as long as the
//     families' rules stay the same.
//   drawn_digests --list
//     prints TEMPLATE and ARCH of each CUDA template: the oldest arch that it serves, and sm_90a.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "generator/render/inliner.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/generator/kernel_lines.hpp"
#include "tests/generator/sass_digest.hpp"
#include "tests/runtime/fake_device.hpp"
#include "tuner/fuzz/draw.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::DrawnKernel;
using testing::MatrixKernel;

struct Request {
  std::string templates, texts, kernel_template, arch;
  std::vector<std::string> problems;
  uint64_t first = 0, count = 0;  // without problems
};

void use_templates(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().extension() == ".md") continue;
    std::ifstream file(entry.path());
    add_bundled_file(fs::relative(entry.path(), folder).string(),
                     {std::istreambuf_iterator<char>(file), {}});
  }
}

std::shared_ptr<const Device> device_for(const std::string& arch) {
  if (arch == "cpu") return open_cpu_device();
  return std::make_shared<testing::FakeDevice>(parse_arch(arch));
}

const Compiler& compiler_for(const Device& device) {
  return device.target() == Target::kCuda ? *open_nvrtc_compiler() : device.compiler();
}

// A kernel of op prefill has any features and programs. Other ops have a spec of the compile
// matrix.
MatrixKernel draw(uint64_t seed, const Device& device, const KernelTemplate& kernel_template,
                  const std::vector<KernelSpec>& specs) {
  const Arch arch = device.archs().front();
  if (kernel_template.serves().op == Op::kPrefill) {
    const DrawnKernel drawn = testing::draw_kernel(seed, device, {&kernel_template});
    return {&kernel_template, spec_of(drawn.problem), arch, drawn.config, {}};
  }
  std::mt19937_64 random(seed);
  const KernelSpec& spec = specs[random() % specs.size()];
  const Shape shape = random() % 2 == 0 ? Shape{1, 4096, 4096, 8, 8} : Shape{8, 16, 1024, 8, 8};
  Config config = kernel_template.default_config(spec, arch, shape, device.facts());
  if (random() % 3 > 0)
    config = testing::random_config(random, kernel_template.space(spec, arch), std::move(config));
  return {&kernel_template, spec, arch, std::move(config), {}};
}

std::vector<MatrixKernel> draw(const Request& request, const Device& device) {
  const KernelTemplate& kernel_template = template_by_name(request.kernel_template);
  std::vector<KernelSpec> specs = testing::matrix_specs();
  std::erase_if(specs, [&](const KernelSpec& spec) {
    return kernel_template.refuses(spec, device.archs().front()).has_value();
  });
  std::vector<MatrixKernel> kernels;
  for (const std::string& text : request.problems) {
    const size_t end = std::min(text.find(';'), text.size());
    const Problem problem = parse_problem(text.substr(0, end));
    const KernelSpec spec = spec_of(problem);
    const Arch arch = device.archs().front();
    Config config = kernel_template.default_config(spec, arch, shape_of(problem), device.facts());
    if (end < text.size()) {
      const Config others = parse_config(text.substr(end + 1));
      for (const auto& [knob, value] : others.knobs()) config.set(knob, value);
    }
    kernels.push_back(
        {&kernel_template, spec, arch, std::move(config), xxh3_128_hex(text).substr(0, 12)});
  }
  if (specs.empty() || !kernels.empty()) return kernels;
  std::set<std::string> seen;
  for (uint64_t seed = request.first; seed < request.first + request.count; ++seed) {
    MatrixKernel kernel = draw(seed, device, kernel_template, specs);
    kernel.id = xxh3_128_hex(to_text(kernel.spec) + kernel.config.to_text()).substr(0, 12);
    if (seen.insert(kernel.id).second) kernels.push_back(std::move(kernel));
  }
  return kernels;
}

std::string code_line(const Request& request, const Device& device,
                      const MatrixKernel& kernel) try {
  const Source source = testing::source_of(kernel);
  if (!request.texts.empty()) {
    std::ofstream(fs::path(request.texts) / (kernel.id + ".txt")) << "// " << kernel.name() << "\n"
                                                                  << source.text;
  }
  const std::string bytes = compiler_for(device).compile(source, kernel.arch).bytes;
  if (device.target() == Target::kCpu) return xxh3_128_hex(bytes);
  return testing::digest_line(kernel, bytes);
} catch (const Error& error) {
  return testing::refused_line(error);
}

void print_drawn(const Request& request) {
  const std::shared_ptr<const Device> device = device_for(request.arch);
  if (!request.texts.empty()) fs::create_directories(request.texts);
  testing::print_lines(draw(request, *device), [&](const MatrixKernel& kernel) {
    return code_line(request, *device, kernel);
  });
}

bool serves(const KernelTemplate& kernel_template, const std::vector<KernelSpec>& specs,
            const Arch& arch) {
  return std::any_of(specs.begin(), specs.end(),
                     [&](const KernelSpec& spec) { return !kernel_template.refuses(spec, arch); });
}

void list() {
  const std::vector<KernelSpec> specs = testing::matrix_specs();
  for (const KernelTemplate* kernel_template : all_templates()) {
    bool is_oldest = true;
    for (const std::string& arch : known_cuda_archs()) {
      if (!is_oldest && arch != "sm_90a") continue;
      if (!serves(*kernel_template, specs, parse_arch(arch))) continue;
      std::cout << kernel_template->name() << " " << arch << "\n";
      is_oldest = false;
    }
  }
}

int run(std::vector<std::string> words) {
  if (words == std::vector<std::string>{"--list"}) {
    list();
    return 0;
  }
  Request request;
  while (words.size() > 2 && words[0].starts_with("--")) {
    if (words[0] == "--templates") request.templates = words[1];
    if (words[0] == "--texts") request.texts = words[1];
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.size() < 3) {
    std::cerr << "usage: drawn_digests [--templates FOLDER] [--texts FOLDER] TEMPLATE ARCH "
                 "PROBLEM ... | FIRST COUNT\n";
    return 2;
  }
  request.kernel_template = words[0];
  request.arch = words[1];
  if (words[2].find('=') != std::string::npos) {
    request.problems.assign(words.begin() + 2, words.end());
  } else {
    request.first = std::strtoull(words[2].c_str(), nullptr, 10);
    request.count = words.size() > 3 ? std::strtoull(words[3].c_str(), nullptr, 10) : 1;
  }
  if (!request.templates.empty()) use_templates(request.templates);
  if (request.arch != "cpu" && open_nvrtc_compiler() == nullptr) {
    std::cerr << nvrtc_advice() << "\n";
    return 77;
  }
  print_drawn(request);
  return 0;
}

}  // namespace
}  // namespace attune

int main(int argc, char** argv) {
  try {
    return attune::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
