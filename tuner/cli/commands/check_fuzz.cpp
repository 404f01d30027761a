// SPDX-License-Identifier: Apache-2.0
// Runs and reports `attune check --fuzz`; see checked_kernel.hpp.
#include "tuner/cli/commands/checked_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/system/error.hpp"
#include "generator/core/system/foreign_text.hpp"
#include "runtime/engine/engine.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/kernel_choice.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/fuzz/fuzz.hpp"

namespace attune::cli {
namespace {

using testing::Fuzz;
using testing::FuzzCase;
using testing::FuzzFailure;

// Returns the command that runs this case alone.
std::string command_of(const FuzzCase& one, const Device& device) {
  return check_command(device, " --fuzz 1", *one.kernel_template, one.config, one.problem,
                       one.seed);
}

Json failure_json(const FuzzFailure& failure, const Device& device) {
  return {
      {"problem", to_text(failure.at.problem)},   {"template", failure.at.kernel_template->name()},
      {"config", failure.at.config.to_text()},    {"seed", failure.at.seed},
      {"wrong_result", failure.is_wrong},         {"reason", failure.reason},
      {"command", command_of(failure.at, device)}};
}

// Runs the kernels of the given problems, each with operands of `count` seeds.
void run_problems(const FuzzOptions& options, const RunOptions& run, const Engine& engine,
                  Fuzz* fuzz) {
  const Device& device = engine.device();
  for (const Problem& problem : workload_of(run).problems) {
    const Op attention = Problem{}.op;  // the op of all cases
    if (problem.op != attention)
      throw Error(ErrorCode::kUnsupported, fmt::format("op is {}; must be {} with --fuzz",
                                                       op_name(problem.op), op_name(attention)));
    if (run.template_name.empty() && options.config.empty()) {  // the kernel that a call would run
      const Plan plan = engine.choose(problem);
      for (int i = 0; i < options.count && !fuzz->is_device_lost(); ++i)
        fuzz->run_case(
            {plan.kernel_template, plan.problem, plan.config, run.seed + static_cast<uint64_t>(i)},
            true);
      continue;
    }
    std::string reasons;
    for (const Arch& arch : device.archs()) {
      try {
        const KernelChoice choice =
            choose_kernel(problem, arch, device.facts(), run.template_name, options.config);
        for (int i = 0; i < options.count && !fuzz->is_device_lost(); ++i)
          fuzz->run_case(
              {choice.kernel_template, problem, choice.config, run.seed + static_cast<uint64_t>(i)},
              true);
        reasons.clear();
        break;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kUnsupported) throw;
        reasons += error.what();
      }
    }
    if (!reasons.empty()) throw Error(ErrorCode::kUnsupported, reasons);
  }
}

Json counts_json(const testing::FuzzCounts& counts) {
  Json templates = Json::object();
  for (const auto& [name, kernels] : counts.kernels_of) templates[name] = kernels;
  return {{"kernels", counts.kernels},
          {"cases", counts.cases},
          {"failures", counts.failures},
          {"passed_over", counts.passed_over},
          {"templates", templates}};
}

std::string summary(const testing::FuzzCounts& counts) {
  return fmt::format(
      "{} cases of {} kernels ({}), {} failed; {} more kernels were skipped because the compiler "
      "refused the config or registers spilled\n",
      counts.cases, counts.kernels, counts_text(counts.kernels_of), counts.failures,
      counts.passed_over);
}

}  // namespace

int check_fuzz(const FuzzOptions& options, const RunOptions& run,
               const std::shared_ptr<const Device>& device) {
  Json failures = Json::array();
  bool is_wrong = false;
  Fuzz fuzz(device, [&](const FuzzFailure& failure) {
    is_wrong = is_wrong || failure.is_wrong;
    if (run.json)
      failures.push_back(failure_json(failure, *device));
    else
      print_bytes(
          fmt::format("{}  # {}\n", command_of(failure.at, *device), one_line(failure.reason)));
  });
  if (has_problems(run.workload)) {
    run_problems(options, run, Engine(device, looking_options(run.machine)), &fuzz);
  } else {
    const auto templates = testing::fuzzed_templates(*device, run.template_name);
    for (int i = 0; i < options.count && !fuzz.is_device_lost(); ++i)
      fuzz.run_drawn(run.seed + static_cast<uint64_t>(i), templates);
  }
  if (fuzz.is_device_lost())
    print_notice("attune: the last case broke the device; the remaining cases were not run");
  if (run.json) {
    Json body{{"device", device->identity().name}, {"seed", run.seed}};
    body.update(counts_json(fuzz.counts()));
    body["list"] = failures;
    print_json("check.fuzz", body);
  } else {
    print(summary(fuzz.counts()));
  }
  if (is_wrong) return kWrongResult;
  return fuzz.counts().failures > 0 ? kMissing : kOk;
}

}  // namespace attune::cli
