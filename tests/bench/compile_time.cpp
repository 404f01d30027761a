// SPDX-License-Identifier: Apache-2.0
// Cold JIT: render + compile + read the log, one thread, every default config of the compile matrix (or every n-th).
//   bench_compile_time [--every N] [--target cuda|cpu] [--arch sm_90a]    prints a table and, last, one JSON object.
// Run it pinned to one core: taskset -c 0 bench_compile_time
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "generator/core/error.hpp"
#include "generator/core/problem.hpp"
#include "generator/cpu_toolchain.hpp"
#include "generator/nvrtc_compiler.hpp"
#include "generator/template_registry.hpp"

namespace {

using attune::Arch;
using attune::KernelSpec;

struct Options {
  int every = 1;
  std::string target = "cuda";
  std::string arch;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--every") == 0) options.every = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--target") == 0) options.target = argv[i + 1];
    if (std::strcmp(argv[i], "--arch") == 0) options.arch = argv[i + 1];
  }
  return options;
}

std::vector<KernelSpec> matrix_specs(const std::string& target) {
  std::vector<KernelSpec> specs;
  const std::vector<const char*> dtypes = target == "cpu"
                                              ? std::vector<const char*>{"fp32", "bf16", "fp16"}
                                              : std::vector<const char*>{"fp16", "bf16", "e4m3"};
  for (const char* dtype : dtypes)
    for (const int head_dim : {64, 80, 96, 128, 192, 256})
      for (const char* mask : {"none", "causal_top_left", "causal_bottom_right"})
        for (const int ratio : {1, 4, 7})
          specs.push_back(attune::spec_of(attune::parse_problem(
              fmt::format("dtype={},head_dim={},heads={}/1,seqlen=4096,mask={}", dtype, head_dim,
                          ratio, mask))));
  return specs;
}

double quantile(const std::vector<double>& sorted, double q) {
  return sorted.empty()
             ? 0
             : sorted[std::min(sorted.size() - 1,
                               static_cast<size_t>(q * static_cast<double>(sorted.size())))];
}

double compile_once(const attune::Compiler& compiler, const attune::KernelTemplate& t,
                    const KernelSpec& spec, const Arch& arch) {
  const auto start = std::chrono::steady_clock::now();
  const attune::Config config =
      t.default_config(spec, arch, {4, 4096, 4096, spec.gqa_ratio, 1}, typical_device(arch).facts);
  compiler.compile(attune::render(t, spec, arch, config), arch);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

nlohmann::json summary(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {{"kernels", times.size()},
          {"median_s", quantile(times, 0.5)},
          {"p95_s", quantile(times, 0.95)}};
}

// A row for each arch and each template that serves some of the specs there.
nlohmann::json measure(const attune::Compiler& compiler, const std::vector<Arch>& archs,
                       const Options& options) {
  std::vector<double> all;
  nlohmann::json rows = nlohmann::json::array();
  int count = 0;
  for (const Arch& arch : archs) {
    std::map<std::string, std::vector<double>> times;
    for (const KernelSpec& spec : matrix_specs(options.target)) {
      const std::vector<attune::Family> families = attune::serving(spec, {arch}).families;
      if (families.empty() || count++ % options.every != 0)
        continue;  // the reference alone is no matrix entry
      const attune::KernelTemplate& best = *families.front().kernel_template;
      all.push_back(compile_once(compiler, best, spec, arch));
      times[std::string(best.name())].push_back(all.back());
    }
    for (const auto& [name, of_template] : times) {
      nlohmann::json row = summary(of_template);
      std::printf("%-16s %-18s %4zu kernels  median %.3f s  p95 %.3f s\n", arch.name().c_str(),
                  name.c_str(), of_template.size(), row["median_s"].get<double>(),
                  row["p95_s"].get<double>());
      row.update({{"arch", arch.name()}, {"template", name}});
      rows.push_back(std::move(row));
    }
  }
  nlohmann::json result = summary(all);
  result.update({{"schema", "attune.bench.compile_time.2"},
                 {"compiler", compiler.version()},
                 {"rows", rows}});
  return result;
}

int run(const Options& options) {
  if (options.target == "cpu") {
    std::string why;
    const attune::CpuToolchain* toolchain = attune::open_cpu_toolchain(&why);
    if (toolchain == nullptr) return std::fprintf(stderr, "%s\n", why.c_str()), 4;
    compile_once(
        toolchain->compiler(),
        *attune::serving(matrix_specs("cpu")[0], {toolchain->host_arch()}).best()->kernel_template,
        matrix_specs("cpu")[0],
        toolchain->host_arch());  // opens clang: once a process, not per kernel
    std::printf("%s\n",
                measure(toolchain->compiler(), {toolchain->host_arch()}, options).dump().c_str());
    return 0;
  }
  const attune::Compiler* compiler = attune::open_nvrtc_compiler();
  if (compiler == nullptr) return std::fprintf(stderr, "%s\n", attune::nvrtc_advice().c_str()), 4;
  std::vector<Arch> archs;
  for (const std::string& name : attune::known_cuda_archs())
    if (options.arch.empty() ? name != "sm_121" : name == options.arch)
      archs.push_back(attune::parse_arch(name));
  std::printf("%s\n", measure(*compiler, archs, options).dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const attune::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
