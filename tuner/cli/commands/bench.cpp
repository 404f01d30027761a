// SPDX-License-Identifier: Apache-2.0
// `attune bench`: times three kernels for each problem of a model or a list, interleaved: the
// runtime's choice, the untuned default, and standard (unfused) attention. Standard attention is
// tuner/oracles/standard_attention.hpp on a CPU, and the reference kernel on a GPU. For comparisons
// with other libraries see tests/bench.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>

#include "generator/core/problem/op.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/engine.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/bench_backend.hpp"
#include "tuner/cli/kernel_choice.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/record_output.hpp"
#include "tuner/cli/workload_options.hpp"
#include "tuner/measure/measure.hpp"
#include "tuner/oracles/oracle.hpp"

namespace attune::cli {
namespace {

struct Options : RunOptions {
  std::string config;
  double time_s = 1.5;
  double fail_if_slower = -1;  // percent; negative: off
  bool no_standard = false;
  double wait_s = kDeviceWaitS;
};

enum Lane : int { kTuned, kDefault, kStandard };

constexpr int kMinRounds = 7;
constexpr int kMaxRounds = 101;
// Standard attention is left out for a problem that would take longer than this.
constexpr double kLongestStandardS = 20;

struct Row {
  Problem problem;
  std::shared_ptr<const Plan> tuned;
  // nullptr if it cannot be made: ATTUNE_NO_JIT is set, and no image exists anywhere.
  std::shared_ptr<const Plan> untuned;
  Timing timing[3];
  std::string standard_note;  // why there is no standard attention
};

// Launches one plan, with its own workspace.
class PlanRunner {
 public:
  PlanRunner(const Device& device, std::shared_ptr<const Plan> plan)
      : plan_(std::move(plan)),
        workspace_(std::make_shared<DeviceMemory>(
            device, std::max<int64_t>(plan_->workspace_bytes(), 256))) {
    init_workspace(*plan_, workspace_->data(), workspace_->bytes(), nullptr);
  }
  void operator()(const Operands& operands) const {
    run(*plan_, operands, workspace_->data(), workspace_->bytes(), nullptr);
  }

 private:
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<DeviceMemory> workspace_;
};

bool same_kernel(const Plan& a, const Plan& b) {
  return a.kernel_template == b.kernel_template && a.arch.name() == b.arch.name() &&
         a.config == b.config;
}

// Returns a runner of the reference kernel. If none serves the problem, returns an empty runner and
// sets `note` to the reason.
BenchBackend::Runner reference_runner(Engine& engine, const Problem& problem, std::string* note) {
  const KernelSpec spec = spec_of(problem);
  if (const auto found = serving(spec, engine.device().archs()).reference) {
    const Config config = found->kernel_template->default_config(
        spec, found->arch, shape_of(problem), engine.device().facts());
    return PlanRunner(engine.device(), engine.plan_with(problem, *found->kernel_template, config));
  }
  *note = "no reference kernel serves this problem";
  return {};
}

// Returns a runner of the kernel to compare with on this device: a reference kernel or, on a CPU,
// standard attention. If there is none, returns an empty runner and sets `note` to the reason.
BenchBackend::Runner standard_runner(Engine& engine, const Problem& problem, std::string* note) {
  const Device& device = engine.device();
  if (device.target() == Target::kCuda) return reference_runner(engine, problem, note);
  const std::shared_ptr<const StandardWay> standard =
      oracle_of(problem).standard(problem, device.facts().sm_count);
  if (!standard) {
    *note = fmt::format("op {} has no standard computation to compare with", op_name(problem.op));
    return {};
  }
  std::shared_ptr<DeviceMemory> scratch;
  try {
    scratch = std::make_shared<DeviceMemory>(device, standard->scratch_bytes());
  } catch (const Error& error) {
    *note = fmt::format("out of memory: the score matrices need {}",
                        format_bytes(static_cast<double>(standard->scratch_bytes())));
    return {};
  }
  return
      [standard, scratch](const Operands& operands) { standard->run(operands, scratch->data()); };
}

// True if standard attention would run for minutes. Estimates the time of its scores alone, at a
// modest speed of a matrix product.
bool standard_is_too_long(const Engine& engine, const Problem& problem) {
  Problem full = problem;
  full.mask = Mask::kNone;
  full.window_left = full.window_right = -1;
  const double flops_per_s =
      engine.device().target() == Target::kCuda ? 5e11 : 3e10 * engine.device().facts().sm_count;
  return useful_flops(full) / flops_per_s > kLongestStandardS / kMinRounds;
}

// Returns the kernel to time: the runtime's choice, or the one that --template and --config name.
std::shared_ptr<const Plan> tuned_plan(Engine& engine, const Problem& problem, const Plan& untuned,
                                       const Options& options) {
  if (options.config.empty() && options.template_name.empty()) return engine.plan(problem);
  const std::string name = options.template_name.empty()
                               ? std::string(untuned.kernel_template->name())
                               : options.template_name;
  const KernelChoice choice =
      choose_kernel(problem, untuned.arch, engine.device().facts(), name, options.config);
  return engine.plan_with(problem, *choice.kernel_template, choice.config);
}

std::shared_ptr<const Plan> plan_if_allowed(Engine& engine, const Problem& problem,
                                            const Plan& choice) {
  try {
    return engine.plan_with(problem, *choice.kernel_template, choice.config);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kWouldCompile) throw;
    return nullptr;
  }
}

Row bench_one(Engine& engine, const Engine& untuned, const Problem& asked, const Options& options) {
  Row row{asked, nullptr, nullptr, {}, {}};
  const Problem problem = canonical(asked);  // for both tuned and default
  const Plan choice = untuned.choose(problem);
  row.tuned = tuned_plan(engine, problem, choice, options);
  row.untuned =
      same_kernel(*row.tuned, choice) ? row.tuned : plan_if_allowed(engine, problem, choice);
  BenchBackend backend(engine.device(), problem, options.seed);
  std::vector<int> lanes{kTuned};
  backend.add(kTuned, PlanRunner(engine.device(), row.tuned));
  if (row.untuned && row.untuned != row.tuned) {
    backend.add(kDefault, PlanRunner(engine.device(), row.untuned));
    lanes.push_back(kDefault);
  }
  if (options.no_standard) {
    row.standard_note = "--no-standard";
  } else if (standard_is_too_long(engine, problem)) {
    row.standard_note = "it would take too long";
  } else if (auto runner = standard_runner(engine, problem, &row.standard_note)) {
    backend.add(kStandard, std::move(runner));
    lanes.push_back(kStandard);
  }
  double sum_us = 0;
  for (const Sample& sample : backend.round(lanes, kShortSampleUs).samples)
    sum_us += std::max(sample.us, kShortSampleUs);
  const int rounds =
      static_cast<int>(std::clamp<double>(options.time_s * 1e6 / sum_us, kMinRounds, kMaxRounds));
  Race race(backend, {.seed = options.seed});
  race.run(lanes, rounds);
  for (const int lane : lanes) row.timing[lane] = race.timing(lane);
  if (row.untuned == row.tuned) row.timing[kDefault] = row.timing[kTuned];
  return row;
}

double flops_per_s(const Row& row) {
  return useful_flops(row.problem) / (row.timing[kTuned].median_us * 1e-6);
}

double bytes_per_s(const Row& row) {
  return operand_bytes(row.problem) / (row.timing[kTuned].median_us * 1e-6);
}

// Returns GFLOP/s or, for an op without arithmetic, GB/s.
std::string rate_text(const Row& row) {
  if (useful_flops(row.problem) == 0) return fmt::format("{:.1f} GB/s", bytes_per_s(row) * 1e-9);
  return fmt::format("{:.0f}", flops_per_s(row) * 1e-9);
}

// Returns the geometric mean of times[other] / times[kTuned] over the rows that have both times; 0
// if no row has both.
double geomean(const std::vector<Row>& rows, Lane other) {
  double sum = 0;
  int count = 0;
  for (const Row& row : rows) {
    if (row.timing[other].median_us <= 0) continue;
    sum += std::log(row.timing[other].median_us / row.timing[kTuned].median_us);
    ++count;
  }
  return count == 0 ? 0 : std::exp(sum / count);
}

bool is_regression(const Row& row, double percent) {
  return percent >= 0 && row.untuned &&
         row.timing[kTuned].lo_us > row.timing[kDefault].hi_us * (1 + percent / 100);
}

Json row_json(const Row& row) {
  const bool has_standard = row.timing[kStandard].median_us > 0;
  return {{"problem", to_text(row.problem)},
          {"template", row.tuned->kernel_template->name()},
          {"arch", row.tuned->arch.name()},
          {"config", row.tuned->config.to_text()},
          {"rung", rung_name(row.tuned->rung)},
          {"default_template",
           row.untuned ? Json(row.untuned->kernel_template->name()) : Json(nullptr)},
          {"default_config", row.untuned ? Json(row.untuned->config.to_text()) : Json(nullptr)},
          {"tuned", timing_json(row.timing[kTuned])},
          {"default", row.untuned ? timing_json(row.timing[kDefault]) : Json(nullptr)},
          {"standard", has_standard ? timing_json(row.timing[kStandard]) : Json(nullptr)},
          {"standard_note", row.standard_note},
          {"flops", useful_flops(row.problem)},
          {"flops_per_s", flops_per_s(row)},
          {"bytes", operand_bytes(row.problem)},
          {"bytes_per_s", bytes_per_s(row)}};
}

Json report_json(const Engine& engine, const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(row_json(row));
  const auto number_or_null = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  return {{"device", device_json(engine.device())},
          {"standard_method", engine.device().target() == Target::kCuda
                                  ? "reference kernel"
                                  : "unfused matmul, softmax, matmul in fp32"},
          {"rows", list},
          {"geomean_speedup_over_default", number_or_null(geomean(rows, kDefault))},
          {"geomean_speedup_over_standard", number_or_null(geomean(rows, kStandard))}};
}

std::string report_text(const Engine& engine, const std::vector<Row>& rows) {
  const char* standard = engine.device().target() == Target::kCuda ? "reference" : "standard";
  Table table({"problem", "tuned", "default", standard, "over default",
               fmt::format("over {}", standard), "GFLOP/s", "chosen by"});
  for (const Row& row : rows) {
    const auto time = [&](Lane lane) { return time_text(row.timing[lane]); };
    const bool is_default = row.untuned == row.tuned && row.tuned->rung >= Rung::kDefaultConfig;
    table.add({short_text(row.problem), is_default ? "not tuned" : time(kTuned), time(kDefault),
               time(kStandard),
               is_default ? "-" : gain_text(row.timing[kTuned], row.timing[kDefault]),
               gain_text(row.timing[kTuned], row.timing[kStandard]), rate_text(row),
               rung_name(row.tuned->rung)});
  }
  std::string text = fmt::format("{}\n{}", engine.device().identity().name, table.text());
  const double over_default = geomean(rows, kDefault);
  const double over_standard = geomean(rows, kStandard);
  if (over_default > 0) text += fmt::format("geomean over default {:.2f}x\n", over_default);
  if (over_standard > 0) text += fmt::format("geomean over {} {:.2f}x\n", standard, over_standard);
  return text;
}

// Hides the log's advice for untuned problems (AT302): the table marks these rows already.
void leave_advice_to_the_table() {
  const LogSink former = set_log_sink({});
  set_log_sink([former](LogLevel level, std::string_view message) {
    if (former && !message.starts_with("AT302")) former(level, message);
  });
}

int bench(const Options& options) {
  leave_advice_to_the_table();
  read_stored_programs(options.machine, options.workload.problems);
  Workload workload = workload_of(options);
  const auto device = open_machine(options.machine.target);
  note_slow_kernels(device->archs().front(), &workload);
  Engine engine(device, looking_options(options.machine));
  EngineOptions no_store;
  no_store.use_store = false;
  Engine untuned(device, no_store);
  const DeviceLock device_lock = lock_device(*device, options.wait_s);
  std::vector<Row> rows;
  for (const Problem& problem : workload.problems) {
    rows.push_back(bench_one(engine, untuned, problem, options));
    if (rows.size() == 1) note_if_busy(*device);  // not above the sentence of a refusal
  }
  if (options.json) {
    Json body = report_json(engine, rows);
    body.update(workload_json(workload));
    print_json("bench", body);
  } else {
    print(report_text(engine, rows));
  }
  for (const Row& row : rows) {
    if (options.fail_if_slower >= 0 && !row.untuned) {
      print_notice(fmt::format(
          "attune: {}: the default kernel could not be timed, so --fail-if-slower cannot compare",
          to_text(row.problem)));
      return kMissing;
    }
    if (!is_regression(row, options.fail_if_slower)) continue;
    print_notice(fmt::format("attune: {}: tuned is slower than default by more than {} %",
                             to_text(row.problem), options.fail_if_slower));
    return kRegression;
  }
  return kOk;
}

}  // namespace

void add_bench(Command program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command =
      add_run_command(program, "bench",
                      "Compare times of tuned, default and standard (unfused) attention; on a GPU, "
                      "the reference kernel is the standard",
                      "attune bench examples/models/Llama-3.1-8B/config.json --seqlen 1024,4096",
                      "Time this template instead of the runtime's choice", options.get());
  command.add_option(
      "--config", options->config,
      "Time this config instead: knobs that differ from the default, knob=value,...");
  command
      .add_option("--time", options->time_s,
                  "Seconds of measuring per problem; ends earlier after 101 rounds")
      .positive()
      .shows_default();
  command
      .add_option("--fail-if-slower", options->fail_if_slower,
                  "Exit code 7 if tuned is slower than default by more than this many percent")
      .not_negative();
  add_wait_option(command, &options->wait_s);
  command.add_flag("--no-standard", options->no_standard, "Leave standard attention out");
  command.callback([options, exit_code] { *exit_code = bench(*options); });
}

}  // namespace attune::cli
