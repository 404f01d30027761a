// SPDX-License-Identifier: Apache-2.0
// Draws problems and checks a random kernel of each as the tuner checks candidates; see
// checked_kernel.hpp.
#include "tuner/cli/commands/checked_kernel.hpp"

#include <fmt/format.h>

#include <map>
#include <random>

#include "generator/core/system/error.hpp"
#include "generator/core/system/foreign_text.hpp"
#include "generator/score/features/features.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/fuzz/draw.hpp"
#include "tuner/oracles/draw_ops.hpp"

namespace attune::cli {
namespace {

// Returns the families that serve the problem, or only the named one.
std::vector<Family> families_of(const TuneTarget& target, const Problem& problem,
                                const std::string& name) {
  std::vector<Family> families = target.families(spec_of(problem));
  std::erase_if(families, [&](const Family& family) {
    return !name.empty() && family.kernel_template->name() != name;
  });
  return families;
}

// Returns the default config of a random family, or a random config of it that fits the problem.
TuneCandidate drawn_candidate(const TuneTarget& target, const std::vector<Family>& families,
                              const Problem& problem, std::mt19937_64* random) {
  const Family& family = families[(*random)() % families.size()];
  const KernelTemplate& kernel = *family.kernel_template;
  const KernelSpec spec = spec_of(problem);
  const Shape shape = shape_of(problem);
  const Config usual = kernel.default_config(spec, family.arch, shape, target.facts());
  if ((*random)() % 3 == 0) return {family, usual, true};
  const Config drawn = testing::random_config(*random, kernel.space(spec, family.arch), usual);
  return kernel.unfit(spec, drawn, shape) ? TuneCandidate{family, usual, true}
                                          : TuneCandidate{family, drawn, false};
}

// Counts the checked kernels, and prints those that failed.
class DrawnKernels {
 public:
  DrawnKernels(const TuneTarget& target, const std::shared_ptr<const Device>& device,
               const RunOptions& run)
      : target_(target), device_(device), backend_(device), run_(run) {}

  bool serves(const Problem& problem) const {
    return !families_of(target_, problem, run_.template_name).empty();
  }
  // Checks a random kernel for the problem, which a template must serve.
  void check(const Problem& problem, uint64_t seed, std::mt19937_64* random) {
    const std::vector<Family> families = families_of(target_, problem, run_.template_name);
    const TuneCandidate candidate = drawn_candidate(target_, families, problem, random);
    std::vector<CheckedKernel> rows;
    check_candidates(target_, &backend_, problem, {candidate}, seed, &rows);
    const auto& fault = rows[0].result.fault;
    if (fault && fault->status == TrialStatus::kCompileFailed && !candidate.is_default) {
      ++passed_over_;
      return;
    }
    ++cases_;
    ++kernels_[std::string(candidate.family.kernel_template->name())];
    if (!fault) return;
    is_lost_ = fault->fatal && device_->target() != Target::kCpu;
    const std::string command = check_command(*device_, "", *candidate.family.kernel_template,
                                              candidate.config, problem, seed);
    list_.push_back({{"command", command}, {"reason", fault->reason}});
    if (!run_.json) print_bytes(fmt::format("{}  # {}\n", command, one_line(fault->reason)));
    failed_.push_back(std::move(rows[0]));
  }
  bool is_device_lost() const { return is_lost_; }
  int cases() const { return cases_; }

  // Prints the counts, and returns the exit code. `what`: such as "gradients".
  int report(const std::string& what) const {
    if (cases_ == 0)
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("no template{} serves {} on {} for the problems that were drawn at "
                              "random",
                              run_.template_name.empty() ? "" : " " + run_.template_name, what,
                              target_.identity().arch));
    if (run_.json)
      print_json("check.fuzz", {{"device", device_->identity().name},
                                {"seed", run_.seed},
                                {"cases", cases_},
                                {"failures", failed_.size()},
                                {"passed_over", passed_over_},
                                {"templates", kernels_},
                                {"list", list_}});
    else
      print(
          fmt::format("{} {} ({}), {} failed; {} more kernels were skipped because the compiler "
                      "refused the config\n",
                      cases_, what, counts_text(kernels_), failed_.size(), passed_over_));
    return exit_code_of(failed_);
  }

 private:
  const TuneTarget& target_;
  const std::shared_ptr<const Device> device_;
  DeviceBackend backend_;
  const RunOptions& run_;
  std::vector<CheckedKernel> failed_;
  std::map<std::string, int> kernels_;
  Json list_ = Json::array();
  int cases_ = 0, passed_over_ = 0;
  bool is_lost_ = false;
};

}  // namespace

int check_drawn(int count, const RunOptions& run, const std::shared_ptr<const Device>& device,
                const TuneTarget& target, const std::string& what, const DrawProblems& draw) {
  constexpr int kTries = 300;
  DrawnKernels kernels(target, device, run);
  for (int i = 0; i < count && !kernels.is_device_lost(); ++i) {
    const uint64_t seed = run.seed + static_cast<uint64_t>(i);
    std::mt19937_64 random(~seed);
    std::vector<Problem> served;
    for (int tries = 0; tries < kTries && served.empty(); ++tries) {
      served = draw(seed, &random);
      std::erase_if(served, [&](const Problem& problem) { return !kernels.serves(problem); });
    }
    if (served.empty() && kernels.cases() == 0) break;
    for (const Problem& problem : served)
      if (!kernels.is_device_lost()) kernels.check(problem, seed, &random);
  }
  if (kernels.is_device_lost())
    print_notice("attune: the last case broke the device; the remaining cases were not run");
  return kernels.report(what);
}

int check_random_op(Op op, int count, const RunOptions& run,
                    const std::shared_ptr<const Device>& device) {
  const DeviceTarget target(device);
  return check_drawn(count, run, device, target, fmt::format("cases of {}", op_name(op)),
                     [op](uint64_t, std::mt19937_64* random) {
                       return std::vector{with_built_ins(testing::random_op_problem(*random, op))};
                     });
}

}  // namespace attune::cli
