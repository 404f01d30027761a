// SPDX-License-Identifier: Apache-2.0
// Times a fresh process from an existing device context to the end of the first launch, with a
// tuned store and no compiler.
//   bench_first_launch [cuda|cpu] [problem]
// The parent compiles into a store, then runs itself several times as a child that measures.
// Prints one JSON object. Exit status 1 if the median exceeds the limit (5 ms on CUDA, 15 ms on a
// CPU), or if a child loaded a compiler.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "generator/core/system/error.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/engine.hpp"
#include "tests/runtime/temporary_folder.hpp"

namespace {

using namespace attune;

constexpr int kProcesses = 9;

bool loaded(const char* library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(library) != std::string::npos) return true;
  return false;
}

bool is_cpu(const std::string& target) { return target.starts_with("cpu"); }

EngineOptions options_for(const std::string& store, bool may_compile) {
  EngineOptions options;
  options.user_store = store;
  options.may_compile = may_compile;
  return options;
}

// Operands and workspace. On CUDA they come from a device of the runtime, so that the driver's
// context exists; on a CPU they are plain memory, so that opening the CPU plugin counts.
struct Memory {
  Memory(const std::string& target, const Problem& p)
      : device(is_cpu(target) ? nullptr : open_device(target)) {
    const int64_t q =
        p.batch * p.seqlen_q * p.num_heads_q * 4 * std::max(p.head_dim_qk, p.head_dim_v);
    const int64_t kv =
        p.batch * p.seqlen_kv * p.num_heads_kv * 4 * std::max(p.head_dim_qk, p.head_dim_v);
    const int64_t bytes = (2 * q + 2 * kv + kWorkspace + 1024) / 256 * 256;
    base = static_cast<char*>(device ? device->allocate(bytes)
                                     : std::aligned_alloc(256, static_cast<size_t>(bytes)));
    if (device)
      device->fill(base, 0, bytes, nullptr), device->synchronize();
    else
      std::memset(base, 0, static_cast<size_t>(bytes));
    operands = contiguous_operands(p, base, base + 2 * q, base + 2 * q + kv, base + q, nullptr);
    workspace = base + (2 * q + 2 * kv + 255) / 256 * 256;
  }

  static constexpr int64_t kWorkspace = 64 << 20;
  const std::shared_ptr<const Device> device;  // memory lives as long as the process
  char* base;
  Operands operands;
  void* workspace;
};

// Returns attune's milliseconds: device, engine, plan, workspace, launch, synchronize.
double first_launch_ms(const std::string& target, const Memory& memory, const std::string& store,
                       const Problem& problem) {
  const auto start = std::chrono::steady_clock::now();
  const std::shared_ptr<const Device> device = open_device(target);
  Engine engine(device, options_for(store, false));
  const std::shared_ptr<const Plan> plan = engine.plan(problem);
  init_workspace(*plan, memory.workspace, Memory::kWorkspace, nullptr);
  run(*plan, memory.operands, memory.workspace, Memory::kWorkspace, nullptr);
  device->synchronize();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

int measure(const std::string& target, const Problem& problem, const std::string& store) {
  const Memory memory(target, problem);
  const double ms = first_launch_ms(target, memory, store, problem);
  std::printf("%.4f %d\n", ms, loaded("nvrtc") || loaded("attune_clang") || loaded("libclang"));
  return 0;
}

struct Sample {
  double ms = 0;
  int compiler_loaded = 0;
};

Sample run_child(const std::string& self, const std::string& target, const std::string& problem,
                 const std::string& store) {
  const std::string command =
      fmt::format("'{}' --measure {} '{}' '{}'", self, target, problem, store);
  Sample sample;
  FILE* const child = popen(command.c_str(), "r");
  const bool read = child && std::fscanf(child, "%lf %d", &sample.ms, &sample.compiler_loaded) == 2;
  if (!child || pclose(child) != 0 || !read)
    throw Error(ErrorCode::kInternal, "a measuring process failed");
  return sample;
}

int parent(const std::string& target, const std::string& problem, bool limited) {
  const testing::TemporaryFolder folder;
  const std::string store = folder / "store.db";
  Engine(open_device(target), options_for(store, true))
      .plan(parse_problem(problem));  // compiles into the store
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return 2;
  std::vector<Sample> samples;
  for (int i = 0; i < kProcesses; ++i) samples.push_back(run_child(self, target, problem, store));
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.ms < b.ms; });
  const bool compiler = std::any_of(samples.begin(), samples.end(),
                                    [](const Sample& s) { return s.compiler_loaded != 0; });
  const double median = samples[kProcesses / 2].ms, limit = is_cpu(target) ? 15 : 5;
  fmt::print(
      "{{\"benchmark\": \"first_launch\", \"target\": \"{}\", \"problem\": \"{}\", \"median_ms\": "
      "{:.3f}, \"min_ms\": {:.3f}, "
      "\"max_ms\": {:.3f}, \"limit_ms\": {}, \"compiler_loaded\": {}}}\n",
      target, problem, median, samples.front().ms, samples.back().ms, limit, compiler);
  return (median <= limit || !limited) && !compiler ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 5 && std::strcmp(argv[1], "--measure") == 0)
    return measure(argv[2], parse_problem(argv[3]), argv[4]);
  const std::string target = argc > 1 ? argv[1] : "cuda";
  // With --unlimited only "no compiler was loaded" is checked, so that a busy machine passes.
  const bool limited = argc < 3 || std::strcmp(argv[2], "--unlimited") != 0;
  return parent(target,
                argc > 2 && limited ? argv[2]
                : is_cpu(target)
                    ? "dtype=fp32,head_dim=64,heads=8/2,seqlen=64"
                    : "dtype=bf16,head_dim=128,heads=32/8,seqlen=512,mask=causal_bottom_right",
                limited);
} catch (const Error& error) {
  std::fprintf(stderr, "%s%s\n", error.code() == ErrorCode::kDriver ? "SKIP: " : "", error.what());
  return error.code() == ErrorCode::kDriver ? 77 : 2;
}
