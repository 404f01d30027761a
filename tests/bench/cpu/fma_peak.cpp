// SPDX-License-Identifier: Apache-2.0
// Measures the peak rate of fp32 multiply-adds: a kernel of FMAs only, compiled for the host by the
// CPU target, on one thread and on all threads. Prints one JSON object with GFLOP/s. cpu_sdpa.py
// states its figures as a share of this peak.
//   bench_fma_peak [THREADS...]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "generator/compile/cpu_toolchain.hpp"
#include "runtime/cpu/thread_pool.hpp"

namespace {

constexpr int kRounds = 1 << 20;
constexpr int kChains = 12;  // independent sums: more than latency times throughput of any core

std::string peak_source(int vector_bytes) {
  return fmt::format(R"(
typedef float Floats __attribute__((ext_vector_type({0})));
extern "C" void attune_kernel(float* const* args, int thread, int) {{
  float* out = *args + thread * 64;
  Floats sum[{1}], x = out[0], y = out[1];
#pragma clang loop unroll(full)
  for (int i = 0; i < {1}; ++i) sum[i] = out[i];
  for (int round = 0; round < {2}; ++round) {{
#pragma clang loop unroll(full)
    for (int i = 0; i < {1}; ++i) sum[i] = sum[i] * x + y;
    asm volatile("" : "+m"(out[0]));
  }}
  Floats total = 0.0f;
#pragma clang loop unroll(full)
  for (int i = 0; i < {1}; ++i) total += sum[i];
  for (int i = 0; i < {0}; ++i) out[i] = total[i];
}}
)",
                     vector_bytes / 4, kChains, kRounds);
}

double best_gflops(const attune::HostKernel& kernel, int vector_bytes, int threads) {
  attune::ThreadPool pool(threads);
  std::vector<float> memory(static_cast<size_t>(threads) * 64, 0.5F);
  attune::KernelArguments args{};
  args.q.data = memory.data();
  double best = 0;
  for (int sample = 0; sample < 15; ++sample) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](int thread, int num_threads) { kernel.function()(&args, thread, num_threads); });
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2.0 * kRounds * kChains * (vector_bytes / 4) * threads / seconds / 1e9);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  std::string why;
  const attune::CpuToolchain* toolchain = attune::compiling_toolchain(&why);
  if (toolchain == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
  }
  const attune::Arch arch = toolchain->host_arch();
  const auto image =
      toolchain->compiler().compile({peak_source(arch.vector_bytes), "fma_peak.cpp"}, arch);
  const auto kernel = toolchain->load(image.bytes, {image.entry});
  std::vector<int> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::max(1, std::atoi(argv[i])));
  if (counts.empty())
    counts = {1, static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))};
  std::string rows;
  for (const int threads : counts)
    rows += fmt::format("{}\"{}\": {:.1f}", rows.empty() ? "" : ", ", threads,
                        best_gflops(*kernel, arch.vector_bytes, threads));
  std::printf("{\"schema\": \"attune.bench.fma_peak.1\", \"arch\": \"%s\", \"gflops\": {%s}}\n",
              arch.name().c_str(), rows.c_str());
}
