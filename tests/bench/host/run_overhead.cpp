// SPDX-License-Identifier: Apache-2.0
// Measures the host cost of attune_run above the bare driver call, and of a plan look-up. Without
// arguments it uses a stub driver, which costs nothing. With --device it uses a real GPU and
// repeats the same launch on the bare driver; rows "driver" show the forms of recorded_launch.hpp.
// Prints one JSON object. Exit status 1 if a limit is exceeded (run: 1 us, 1.5 us with tensor
// maps; look-up: 1 us).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "attune/attune.h"
#include "runtime/c_api/c_support.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/engine/engine.hpp"
#include "tests/bench/host/recorded_launch.hpp"
#include "tests/runtime/structure_of.hpp"
#include "tests/runtime/stub_driver.hpp"
#include "tests/support/device_with_compiler.hpp"

namespace {

using namespace attune;

constexpr int kSamples = 41, kCallsPerSample = 200, kRounds = 9;

// Returns the median over samples of a call's mean time; `between` is not timed.
double call_ns(const std::function<void()>& call, const std::function<void()>& between) {
  std::vector<double> samples;
  for (int s = 0; s < kSamples; ++s) {
    between();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCallsPerSample; ++i) call();
    samples.push_back(
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() /
        kCallsPerSample);
  }
  std::nth_element(samples.begin(), samples.begin() + kSamples / 2, samples.end());
  return samples[kSamples / 2];
}

// The last launch, recorded while `sizes` has its parameters' sizes.
std::optional<bench::RecordedLaunch> recorded;
std::vector<size_t> sizes;
cuda::Result (*bare_launch)(const cuda::LaunchConfig*, cuda::Function, void**, void**) = nullptr;

cuda::Result recording_launch(const cuda::LaunchConfig* config, cuda::Function function,
                              void** parameters, void** extra) {
  if (!sizes.empty()) recorded.emplace(*config, function, parameters, sizes);
  return bare_launch(config, function, parameters, extra);
}

std::vector<size_t> parameter_sizes(const LaunchStep& step) {
  std::vector<size_t> found{sizeof(AttentionArgs)};
  if (step.parts.size() > 1) found.push_back(sizeof(ScaleArgs));
  found.resize(found.size() + step.tensor_maps.size(), sizeof(cuda::TensorMap));
  return found;
}

// A separate device over `driver` that records launches.
struct Bench {
  explicit Bench(cuda::DriverTable the_driver) : bare(the_driver), driver(the_driver) {
    bare_launch = driver.cuLaunchKernelEx;
    driver.cuLaunchKernelEx = recording_launch;
    const auto context = cuda::CudaContext::open(driver, 0);
    device = std::make_shared<cuda::CudaDevice>(context);
    current.emplace(*context);  // the bare driver call needs a current context too
  }

  cuda::DriverTable bare, driver;
  std::shared_ptr<const Device> device;
  std::optional<cuda::ContextScope> current;
};

// Returns a plan whose image only the stub driver accepts, with or without tensor maps.
std::shared_ptr<const Plan> stub_plan(const Bench& bench, const Problem& problem,
                                      bool tensor_maps) {
  Plan plan;
  plan.problem = problem;
  plan.operands = operands_of(problem);
  plan.device = bench.device;
  plan.launch.main().grid_x = 132;
  plan.launch.main().threads = 384;
  plan.launch.workspace_bytes = plan.launch.zeroed_bytes = 256;
  if (tensor_maps)
    plan.launch.main().tensor_maps = {{Operand::kQ, 64, 64, 128},
                                      {Operand::kK, 64, 128, 128},
                                      {Operand::kV, 64, 128, 128},
                                      {Operand::kO, 64, 64, 128}};
  KernelImage image;
  image.bytes = "cubin";
  plan.kernel = bench.device->load(image, spec_of(problem), testing::structure_of(plan.launch));
  return std::make_shared<const Plan>(std::move(plan));
}

struct Cost {
  std::string name;
  double ns, limit_ns;  // 0: no limit
};

// Returns the driver's time for the recorded launch, form by form, interleaved.
std::vector<Cost> driver_costs(const std::string& name, const Bench& bench) {
  const std::vector<bench::LaunchForm> forms = bench::launch_forms(bench.bare, *recorded);
  std::vector<std::vector<double>> samples(forms.size());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < forms.size(); ++i)
      samples[i].push_back(call_ns(
          [&] {
            if (forms[i].launch() != cuda::kSuccess)
              throw Error(ErrorCode::kDriver, forms[i].what + " fails on the bare driver");
          },
          [&] { bench.device->synchronize(); }));
  std::vector<Cost> costs;
  for (size_t i = 0; i < forms.size(); ++i) {
    std::nth_element(samples[i].begin(), samples[i].begin() + kRounds / 2, samples[i].end());
    costs.push_back(
        {fmt::format("driver, {}: {}", name, forms[i].what), samples[i][kRounds / 2], 0});
  }
  return costs;
}

// Times attune_run of `plan` against the same launch on the bare driver, interleaved. Adds the
// driver's own forms of that launch.
std::vector<Cost> run_costs(const std::string& name, const Bench& bench,
                            std::shared_ptr<const Plan> plan) {
  const attune_problem problem = [&] {
    attune_problem parsed;
    attune_problem_parse(to_text(plan->problem).c_str(), &parsed);
    return parsed;
  }();
  const int64_t bytes = 4 << 20;
  char* const memory = static_cast<char*>(bench.device->allocate(4 * bytes + 256));
  const auto workspace_bytes = static_cast<size_t>(plan->workspace_bytes());
  void* const workspace = bench.device->allocate(plan->workspace_bytes() + 1);
  init_workspace(*plan, workspace, plan->workspace_bytes(), nullptr);
  attune_operands operands;
  attune_operands_contiguous(&problem, memory, memory + bytes, memory + 2 * bytes,
                             memory + 3 * bytes, nullptr, &operands);
  const double limit_ns = plan->launch.uses_tensor_maps() ? 1500 : 1000;
  sizes = parameter_sizes(plan->launch.main());
  const attune_plan handle(std::move(plan));
  if (attune_run(&handle, &operands, workspace, workspace_bytes, nullptr) != ATTUNE_OK)
    throw Error(ErrorCode::kInternal, attune_last_error());
  sizes.clear();
  const auto settle = [&] { bench.device->synchronize(); };
  std::vector<double> above;
  for (int round = 0; round < kRounds; ++round) {
    const double bare = call_ns([&] { recorded->repeat(bench.bare); }, settle);
    above.push_back(
        call_ns([&] { attune_run(&handle, &operands, workspace, workspace_bytes, nullptr); },
                settle) -
        bare);
  }
  std::nth_element(above.begin(), above.begin() + kRounds / 2, above.end());
  std::vector<Cost> costs = driver_costs(name, bench);
  costs.insert(costs.begin(), {name, above[kRounds / 2], limit_ns});
  bench.device->synchronize();
  bench.device->release(memory), bench.device->release(workspace);
  return costs;
}

Cost look_up_cost(attune_context& context, const Problem& problem) {
  attune_problem parsed;
  attune_problem_parse(to_text(problem).c_str(), &parsed);
  attune_plan* plan = nullptr;
  if (attune_plan_get(&context, &parsed, nullptr, &plan) != ATTUNE_OK)
    throw Error(ErrorCode::kInternal, attune_last_error());
  attune_plan_release(plan);
  const double ns = call_ns(
      [&] {
        attune_plan_get(&context, &parsed, nullptr, &plan);
        attune_plan_release(plan);
      },
      [] {});
  return {"plan_get of a known problem", ns, 1000};
}

EngineOptions without_store() {
  EngineOptions options;
  options.use_store = false;
  return options;
}

// Returns images without code, for an engine that gets its plans without compiling.
class NoCodeCompiler final : public Compiler {
 public:
  std::string version() const override { return "none"; }
  std::string options(const Arch&) const override { return ""; }
  KernelImage compile(const Source&, const Arch&) const override {
    return {ImageFormat::kCubin, "cubin", kEntryName, {}, "", 0};
  }
};

using StubDevice = testing::DeviceWithCompiler<NoCodeCompiler>;

void add(std::vector<Cost>* costs, const std::vector<Cost>& more) {
  costs->insert(costs->end(), more.begin(), more.end());
}

std::vector<Cost> over_stub(const Problem& problem) {
  static Bench bench(testing::stub_driver());
  attune_context context;
  context.engine =
      std::make_unique<Engine>(std::make_shared<StubDevice>(bench.device), without_store());
  std::vector<Cost> costs = run_costs("run", bench, stub_plan(bench, problem, false));
  add(&costs, run_costs("run with four tensor maps", bench, stub_plan(bench, problem, true)));
  costs.push_back(look_up_cost(context, problem));
  return costs;
}

std::vector<Cost> on_device(const Problem& problem) {
  std::string why;
  const cuda::DriverTable* driver = cuda::open_driver(&why);
  if (!driver) throw Error(ErrorCode::kDriver, why);
  static Bench bench(*driver);
  attune_context context;
  context.engine = std::make_unique<Engine>(bench.device, without_store());
  std::vector<Cost> costs;
  Operands broadcast = contiguous_operands(problem, nullptr, nullptr, nullptr, nullptr, nullptr);
  broadcast.k.head_stride = 0;
  for (const Operands* layout :
       {static_cast<const Operands*>(nullptr), static_cast<const Operands*>(&broadcast)}) {
    const auto plan = context.engine->plan(problem, layout);
    add(&costs, run_costs(fmt::format("run {}", plan->kernel_template->name()), bench, plan));
  }
  costs.push_back(look_up_cost(context, problem));
  return costs;
}

}  // namespace

int main(int argc, char** argv) try {
  const bool device = argc > 1 && std::strcmp(argv[1], "--device") == 0;
  // --unlimited, in the default run of the tests, ignores the limits: the machine may be busy.
  const bool limited = argc < 2 || std::strcmp(argv[1], "--unlimited") != 0;
  const Problem problem = parse_problem(
      "dtype=bf16,head_dim=128,heads=2/2,batch=1,seqlen=128,mask=causal_bottom_right");
  testing::stub_calls.current = testing::stub_primary();
  bool kept = true;
  std::string rows;
  for (const Cost& cost : device ? on_device(problem) : over_stub(problem)) {
    const bool has_limit = cost.limit_ns > 0;
    rows += fmt::format("{}\n  {{\"what\": \"{}\", \"ns\": {:.0f}{}}}", rows.empty() ? "" : ",",
                        cost.name, cost.ns,
                        has_limit ? fmt::format(", \"limit_ns\": {:.0f}", cost.limit_ns) : "");
    kept = kept && (!has_limit || cost.ns <= cost.limit_ns);
  }
  fmt::print("{{\"benchmark\": \"run_overhead\", \"driver\": \"{}\", \"costs\": [{}]}}\n",
             device ? "real" : "stub", rows);
  return kept || !limited ? 0 : 1;
} catch (const attune::Error& error) {
  const bool no_device = error.code() == attune::ErrorCode::kDriver;
  fmt::print(stderr, "{}{}\n", no_device ? "SKIP: " : "", error.what());
  return no_device ? 77 : 2;
}
