// SPDX-License-Identifier: Apache-2.0
// Measures cold JIT compilation: the processor time to render, compile and read the log, which is
// about the same if other programs run. Covers every default config of the compile matrix (or every
// n-th), and on sm_90a kernels with and without score features and programs.
//   bench_compile_time [--every N] [--target cuda|cpu] [--arch sm_90a]
// prints tables and, last, one JSON object. --every 0 leaves the matrix out.
// Run it pinned to one core: taskset -c 0 bench_compile_time
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/problem/problem.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/language/user_program.hpp"
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
    if (std::strcmp(argv[i], "--every") == 0) options.every = std::max(0, std::atoi(argv[i + 1]));
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

// Returns the processor time of this process so far, in seconds.
double processor_s() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double compile_once(const attune::Compiler& compiler, const attune::KernelTemplate& t,
                    const KernelSpec& spec, const Arch& arch) {
  const double start = processor_s();
  const attune::Config config =
      t.default_config(spec, arch, {4, 4096, 4096, spec.gqa_ratio, 1}, typical_device(arch).facts);
  compiler.compile(attune::render(t, spec, arch, config), arch);
  return processor_s() - start;
}

nlohmann::json summary(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {{"kernels", times.size()},
          {"median_s", quantile(times, 0.5)},
          {"p95_s", quantile(times, 0.95)}};
}

// Returns a row for each arch and each template that serves some of the specs on that arch.
nlohmann::json measure(const attune::Compiler& compiler, const std::vector<Arch>& archs,
                       const Options& options) {
  std::vector<double> all;
  nlohmann::json rows = nlohmann::json::array();
  int count = 0;
  for (const Arch& arch : archs) {
    std::map<std::string, std::vector<double>> times;
    for (const KernelSpec& spec : matrix_specs(options.target)) {
      const std::vector<attune::Family> families = attune::serving(spec, {arch}).families;
      if (families.empty() || options.every == 0 || count++ % options.every != 0)
        continue;  // only the reference serves it: not a matrix entry
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
  result.update({{"schema", "attune.bench.compile_time.4"},
                 {"compiler", compiler.version()},
                 {"rows", rows}});
  return result;
}

// Returns the time from a problem's text (with its programs) to its image.
double parse_and_compile(const attune::Compiler& compiler, const std::string& program,
                         const std::string& problem, const Arch& arch) {
  const double start = processor_s();
  std::string text = problem;
  if (!program.empty())
    text += ",mask_mod=" +
            attune::to_text(
                attune::read_user_program(program, attune::score::Kind::kMask, "mask_mod").digest);
  const KernelSpec spec = attune::spec_of(attune::parse_problem(text));
  compile_once(compiler, *attune::serving(spec, {arch}).best()->kernel_template, spec, arch);
  return processor_s() - start;
}

// Times kernels with features. Takes the fastest run, since other load only adds time.
nlohmann::json measure_features(const attune::Compiler& compiler, const Arch& arch) {
  constexpr int kTimes = 5;
  constexpr const char* kWindow =
      "// scalar reach: int\nreturn kv_idx <= q_idx + reach && q_idx - kv_idx < 4 * reach;";
  constexpr const char* kDocuments =
      "// capture ids: int32[2]\nreturn ids[batch][q_idx] == ids[batch][kv_idx];";
  struct Row {
    const char* name;
    const char* program;
    const char* problem;
  };
  constexpr Row kRows[] = {{"plain", "", ""},
                           {"softcap", "", ",softcap=50"},
                           {"documents", "", ",documents=1"},
                           {"documents by a map", "", ",documents=1,block_map=skips"},
                           {"window as a program", kWindow, ""},
                           {"documents as a program", kDocuments, ""},
                           {"blocks of a list", "", ",block_map=hides"}};
  nlohmann::json rows = nlohmann::json::array();
  const auto add = [&](const std::string& name, const char* program, const std::string& problem) {
    double best = 1e9;
    for (int i = 0; i < kTimes; ++i)
      best = std::min(best, parse_and_compile(compiler, program, problem, arch));
    std::printf("%-16s %-34s %.3f s\n", arch.name().c_str(), name.c_str(), best);
    rows.push_back({{"arch", arch.name()}, {"kernel", name}, {"problem", problem}, {"s", best}});
  };
  for (const int head_dim : {64, 128})
    for (const Row& row : kRows)
      add(fmt::format("d{} {}", head_dim, row.name), row.program,
          fmt::format("dtype=bf16,head_dim={},heads=16,batch=4,seqlen=4096{}", head_dim,
                      row.problem));
  const std::string map = "op=block_map,head_dim=128,heads=16,seqlen=4096";
  add("map of documents", "", map + ",documents=1");
  add("map of a window as a program", kWindow, map);
  return rows;
}

int run(const Options& options) {
  if (options.target == "cpu") {
    std::string why;
    const attune::CpuToolchain* toolchain = attune::compiling_toolchain(&why);
    if (toolchain == nullptr) return std::fprintf(stderr, "%s\n", why.c_str()), 4;
    compile_once(
        toolchain->compiler(),
        *attune::serving(matrix_specs("cpu")[0], {toolchain->host_arch()}).best()->kernel_template,
        matrix_specs("cpu")[0],
        toolchain->host_arch());  // opens clang, once per process
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
  nlohmann::json result = measure(*compiler, archs, options);
  for (const Arch& arch : archs)
    if (arch.name() == "sm_90a") result["features"] = measure_features(*compiler, arch);
  std::printf("%s\n", result.dump().c_str());
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
