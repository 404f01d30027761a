// SPDX-License-Identifier: Apache-2.0
// Draws and checks random gradients; see checked_kernel.hpp.
#include "tuner/cli/commands/checked_kernel.hpp"

#include <fmt/format.h>

#include <map>
#include <random>

#include "generator/core/ops/ops.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/features/features.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/fuzz/draw.hpp"
#include "tuner/fuzz/fuzz.hpp"

namespace attune::cli {
namespace {

bool is_valid(const Problem& problem) {
  try {
    validate(problem);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Draws options that gradients have and the forward pass lacks.
void draw_choices(std::mt19937_64* random, Problem* problem) {
  problem->backward.deterministic = (*random)() % 2 == 0;
  Problem more = *problem;
  more.backward.accumulate = (*random)() % 4 == 0;
  if ((*random)() % 3 == 0) more.backward.gradients = static_cast<Gradients>(1 + (*random)() % 6);
  if (is_valid(more)) *problem = more;
}

// Draws a forward problem and returns its gradient problems. Half of the draws combine pairs of
// features in turn; the other half draw a problem that the drawn template serves.
std::vector<Problem> drawn_gradients(const Device& device, std::mt19937_64* random, uint64_t seed,
                                     const std::vector<const KernelTemplate*>& templates) {
  const testing::DrawnKernel drawn = testing::draw_kernel(seed, device, templates);
  Problem forward = (*random)() % 2 == 0
                        ? drawn.problem
                        : testing::random_problem(*random, device, *drawn.kernel_template);
  testing::draw_lengths(*random, drawn.config, &forward);
  const auto of_256 = static_cast<float>((*random)() % 4 == 0 ? 1 + (*random)() % 128 : 0);
  if (!is_8_bit(forward) && forward.dropout == 0) forward.dropout = of_256 / 256;
  std::vector<Problem> problems = gradient_problems(with_built_ins(forward));
  for (Problem& problem : problems) draw_choices(random, &problem);
  return problems;
}

// Returns one random config of a random family. Returns an empty list if no template, or not the
// named one, serves the problem.
std::vector<TuneCandidate> drawn_candidate(const TuneTarget& target, const Problem& problem,
                                           const std::string& name, std::mt19937_64* random) {
  std::vector<Family> families = target.families(spec_of(problem));
  std::erase_if(families, [&](const Family& family) {
    return !name.empty() && family.kernel_template->name() != name;
  });
  if (families.empty()) return {};
  const Family& family = families[(*random)() % families.size()];
  return sampled_configs(family, problem, (*random)(), 1);
}

}  // namespace

int check_random_gradients(int count, const RunOptions& run,
                           const std::shared_ptr<const Device>& device) {
  const DeviceTarget target(device);
  DeviceBackend backend(device);
  const auto templates = testing::fuzzed_templates(*device, "");
  std::vector<CheckedKernel> failed;
  std::map<std::string, int> kernels;
  Json list = Json::array();
  int cases = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = run.seed + static_cast<uint64_t>(i);
    std::mt19937_64 random(~seed);
    for (const Problem& problem : drawn_gradients(*device, &random, seed, templates)) {
      const auto candidates = drawn_candidate(target, problem, run.template_name, &random);
      if (candidates.empty()) continue;
      std::vector<CheckedKernel> rows;
      check_candidates(target, &backend, problem, candidates, seed, &rows);
      ++cases;
      ++kernels[std::string(candidates[0].family.kernel_template->name())];
      const auto& fault = rows[0].result.fault;
      if (!fault) continue;
      const std::string command = check_command(*device, "", *candidates[0].family.kernel_template,
                                                candidates[0].config, problem, seed);
      list.push_back({{"command", command}, {"reason", fault->reason}});
      if (!run.json) print_bytes(fmt::format("{}  # {}\n", command, fault->reason));
      failed.push_back(std::move(rows[0]));
    }
  }
  if (cases == 0)
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format(
            "no template{} serves gradients on {} for the problems that were drawn at random",
            run.template_name.empty() ? "" : " " + run.template_name, target.identity().arch));
  if (run.json) {
    print_json("check.fuzz", {{"device", device->identity().name},
                              {"seed", run.seed},
                              {"cases", cases},
                              {"failures", failed.size()},
                              {"templates", kernels},
                              {"list", list}});
  } else {
    print(
        fmt::format("{} gradients ({}), {} failed\n", cases, counts_text(kernels), failed.size()));
  }
  return exit_code_of(failed);
}

}  // namespace attune::cli
