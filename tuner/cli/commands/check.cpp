// SPDX-License-Identifier: Apache-2.0
// `attune check`: compares results of kernels with the oracle's, on poisoned outputs, as the tuner
// checks each candidate. Takes any config, the runtime's choice, or a sample of the search space.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "generator/core/system/error.hpp"
#include "generator/score/features/features.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/engine.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/checked_kernel.hpp"
#include "tuner/cli/kernel_choice.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/cli/workload_options.hpp"
#include "tuner/measure/device_backend.hpp"
#include "tuner/oracles/draw_ops.hpp"
#include "tuner/search/tune_target.hpp"

namespace attune::cli {
namespace {

struct Options : RunOptions {
  std::string config;
  int sample = 0;
  int fuzz = 0;
  std::string op;  // of drawn problems; empty: prefill
};

// Returns the candidates that --template, --config or --sample select, for the problem as given.
std::vector<TuneCandidate> candidates_of(const TuneTarget& target, const Problem& problem,
                                         const Options& options) {
  const KernelSpec spec = spec_of(problem);
  std::vector<TuneCandidate> candidates;
  for (const Family& family : target.families(spec)) {
    if (!options.template_name.empty() && family.kernel_template->name() != options.template_name)
      continue;
    if (options.sample > 0) {
      for (TuneCandidate& one : sampled_configs(family, problem, options.seed, options.sample))
        candidates.push_back(std::move(one));
    } else if (candidates.empty()) {
      const KernelChoice choice =
          choose_kernel(problem, family.arch, target.facts(),
                        std::string(family.kernel_template->name()), options.config);
      candidates.push_back({family, choice.config, false});
    }
  }
  if (candidates.empty())
    throw Error(ErrorCode::kUnsupported,
                fmt::format("no template{} serves {} on {}",
                            options.template_name.empty() ? "" : " " + options.template_name,
                            to_text(problem), target.identity().arch));
  return candidates;
}

Json row_json(const CheckedKernel& row) {
  const auto& fault = row.result.fault;
  return {{"problem", to_text(row.problem)},
          {"template", row.candidate.family.kernel_template->name()},
          {"arch", row.candidate.family.arch.name()},
          {"config", row.candidate.config.to_text()},
          {"status", trial_status_name(fault ? fault->status : TrialStatus::kOk)},
          {"reason", fault ? Json(fault->reason) : Json(nullptr)},
          {"error_max", row.result.error_max},
          {"error_mean", row.result.error_mean},
          {"image_from", row.image_from.empty() ? Json(nullptr) : Json(row.image_from)}};
}

void print_rows(const std::vector<CheckedKernel>& rows) {
  Table table(
      {"problem", "template", "config", "largest / its limit", "mean / its limit", "result"});
  for (const CheckedKernel& row : rows) {
    const auto& fault = row.result.fault;
    table.add(
        {short_text(row.problem), std::string(row.candidate.family.kernel_template->name()),
         row.candidate.config.to_text(), fmt::format("{:.2f}", row.result.error_max),
         fmt::format("{:.2f}", row.result.error_mean),
         fault ? fmt::format("{}: {}", trial_status_name(fault->status), fault->reason) : "ok"});
  }
  print(
      "errors against the oracle, divided by the allowed errors: the largest over all elements, "
      "and the mean\n" +
      table.text());
}

bool names_kernels(const Options& options) {
  return options.sample > 0 || !options.config.empty() || !options.template_name.empty();
}

[[noreturn]] void refuse_to_compile() {
  throw Error(ErrorCode::kWouldCompile,
              "ATTUNE_NO_JIT is set, but --sample, --template, --config and --fuzz compile "
              "kernels; without these options, check uses the kernel that a call would run");
}

// Returns the op whose problems --fuzz draws.
Op drawn_op(const Options& options) {
  const Op usual = Problem{}.op;
  if (options.op.empty()) return usual;
  if (options.fuzz == 0 || has_problems(options.workload) || options.workload.training)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--op is {}; must be given with --fuzz alone, which draws problems: "
                            "without --problem, MODEL, --captured and --training",
                            options.op));
  std::string taken(op_name(usual));
  for (const Op one : testing::drawn_ops()) taken += fmt::format(", {}", op_name(one));
  const Op op = parse_op(options.op);
  const std::vector<Op>& drawn = testing::drawn_ops();
  if (op != usual && std::find(drawn.begin(), drawn.end(), op) == drawn.end())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--op is {}; must be one of {}", options.op, taken));
  return op;
}

int fuzz(const Options& options) {
  const Op op = drawn_op(options);
  const auto device = open_machine(options.machine.target);
  if (!engine_options(options.machine).may_compile) refuse_to_compile();
  const std::string given =
      options.config.empty() ? first_given(options.workload) : std::string("--config");
  if (!has_problems(options.workload) && !given.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{0} is given with --fuzz, but no problem is; give --problem or MODEL "
                            "too, or leave {0} out: --fuzz alone draws random problems",
                            given));
  if (options.workload.dropout != 0 || options.workload.deterministic)
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is given with --fuzz; must be left out: --fuzz with --training draws "
                    "dropout and deterministic at random",
                    options.workload.dropout != 0 ? "--dropout" : "--deterministic"));
  if (op != Problem{}.op) return check_random_op(op, options.fuzz, options, device);
  if (!options.workload.training)
    return check_fuzz({options.fuzz, options.config}, options, device);
  if (has_problems(options.workload))
    throw Error(ErrorCode::kInvalidArgument,
                "--fuzz and --training are given with a problem or a model; give --fuzz and "
                "--training alone, or check these problems with --sample");
  return check_random_gradients(options.fuzz, options, device);
}

int check(const Options& options) {
  if (options.sample < 0)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--sample is {}; must be at least 0 (0: off)", options.sample));
  if (options.fuzz < 0)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--fuzz is {}; must be at least 0 (0: off)", options.fuzz));
  if (!options.template_name.empty()) template_by_name(options.template_name);  // or a list of all
  if (options.fuzz > 0) return fuzz(options);
  drawn_op(options);  // refuses --op
  read_stored_programs(options.machine, options.workload.problems);
  Workload workload = workload_of(options);
  const auto device = open_machine(options.machine.target);
  note_slow_kernels(device->archs().front(), &workload);
  const DeviceTarget target(device);
  const EngineOptions settings = looking_options(options.machine);
  Engine engine(device, settings);
  DeviceBackend backend(device);
  std::vector<CheckedKernel> rows;
  if (names_kernels(options) && !settings.may_compile) refuse_to_compile();
  for (const Problem& given : workload.problems) {
    if (!names_kernels(options)) {
      check_plan(target, &backend, *engine.plan(given), options.seed, &rows);
      continue;
    }
    const Problem problem = with_built_ins(given);
    check_candidates(target, &backend, problem, candidates_of(target, problem, options),
                     options.seed, &rows);
  }
  if (options.json) {
    Json list = Json::array();
    for (const CheckedKernel& row : rows) list.push_back(row_json(row));
    Json body{{"device", device->identity().name}, {"seed", options.seed}, {"rows", list}};
    body.update(workload_json(workload));
    print_json("check", body);
  } else {
    print_rows(rows);
  }
  return exit_code_of(rows);
}

}  // namespace

void add_check(Command program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command = add_run_command(
      program, "check",
      "Compare results of kernels with an independent computation, the oracle (exit code 3 if "
      "wrong)",
      "attune check --problem dtype=fp32,head_dim=64,heads=4,seqlen=333 --sample 10",
      "Kernel template (default: the one that the runtime would choose)", options.get());
  const Option config = command.add_option("--config", options->config,
                                           "Knobs that differ from the default, knob=value,...");
  Option sample = command.add_option("--sample", options->sample,
                                     "Instead, check this many random configs of each template");
  sample.excludes(config);
  command
      .add_option("--fuzz", options->fuzz,
                  "Check this many random kernels, each on random operands of any layout, against "
                  "float64. With --problem: check its kernel on this many sets of random operands. "
                  "With --training: check the gradients of this many random problems. Each failure "
                  "prints the command that repeats it")
      .excludes(sample);
  command.add_option("--op", options->op,
                     "With --fuzz: draw problems of this op: prefill (default), "
                     "attention_kvcache, append_kv, top_k or index_scores");
  command.callback([options, exit_code] { *exit_code = check(*options); });
}

}  // namespace attune::cli
