// SPDX-License-Identifier: Apache-2.0
// Checks candidates and plans, and prints their command; see checked_kernel.hpp.
#include "tuner/cli/commands/checked_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "generator/core/system/error.hpp"
#include "generator/core/system/foreign_text.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/program_options.hpp"
#include "tuner/oracles/reference_kernels.hpp"

namespace attune::cli {
namespace {

Prepared check_one(const TuneTarget& target, MeasureBackend* backend, const KernelSpec& spec,
                   const TuneCandidate& candidate) {
  KernelImage image;
  try {
    image = target.make(spec, candidate);
  } catch (const Error& error) {
    Prepared failed;
    failed.fault = Fault{TrialStatus::kCompileFailed, error.what()};
    return failed;
  }
  Prepared result = backend->prepare(0, {std::string(candidate.family.kernel_template->name()),
                                         candidate.config, std::move(image)});
  backend->drop(0);
  return result;
}

}  // namespace

std::vector<TuneCandidate> sampled_configs(const Family& family, const Problem& problem,
                                           uint64_t seed, int count) {
  const KernelSpec spec = spec_of(problem);
  std::vector<Config> configs = family.kernel_template->space(spec, family.arch).enumerate();
  std::erase_if(configs, [&](const Config& config) {
    return family.kernel_template->unfit(spec, config, shape_of(problem)).has_value();
  });
  std::mt19937_64 random(seed);
  std::shuffle(configs.begin(), configs.end(), random);
  configs.resize(std::min(configs.size(), static_cast<size_t>(count)));
  std::vector<TuneCandidate> candidates;
  for (Config& config : configs) candidates.push_back({family, std::move(config), false});
  return candidates;
}

void check_candidates(const TuneTarget& target, DeviceBackend* backend, const Problem& problem,
                      const std::vector<TuneCandidate>& candidates, uint64_t seed,
                      std::vector<CheckedKernel>* rows) {
  backend->open({problem, seed, ReferenceKernels(target).of(problem), false});
  for (const TuneCandidate& candidate : candidates)
    rows->push_back(
        {problem, candidate, check_one(target, backend, spec_of(problem), candidate), {}});
}

void check_plan(const TuneTarget& target, DeviceBackend* backend, const Plan& plan, uint64_t seed,
                std::vector<CheckedKernel>* rows) {
  backend->open({plan.problem, seed, ReferenceKernels(target).of(plan.problem), false});
  rows->push_back({plan.problem,
                   {{plan.kernel_template, plan.arch}, plan.config, false},
                   backend->prepare_plan(0, plan),
                   plan.image_from});
  backend->drop(0);
}

std::string check_command(const Device& device, const std::string& options,
                          const KernelTemplate& kernel_template, const Config& config,
                          const Problem& problem, uint64_t seed) {
  Problem plain = problem;
  plain.scores.score_mod = plain.scores.mask_mod = {};
  return fmt::format(
      "attune check{} --target {} --template {} --config {} --problem {}{} --seed {}", options,
      device.target() == Target::kCpu ? "cpu" : "cuda", kernel_template.name(),
      shell_word(config.to_text()), shell_word(to_text(plain)), program_words(problem), seed);
}

std::string counts_text(const std::map<std::string, int>& counts) {
  std::string text;
  for (const auto& [name, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
  return text;
}

int exit_code_of(const std::vector<CheckedKernel>& rows) {
  int code = kOk;
  for (const CheckedKernel& row : rows) {
    if (!row.result.fault) continue;
    if (row.result.fault->status == TrialStatus::kWrongResult) return kWrongResult;
    code = kMissing;
  }
  return code;
}

}  // namespace attune::cli
