// SPDX-License-Identifier: Apache-2.0
// Repeating finals; see repeat_final.hpp.
#include "tuner/cli/repeat_final.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/error.hpp"
#include "tuner/cli/workload_options.hpp"
#include "tuner/measure.hpp"

namespace attune::cli {
namespace {

constexpr int kRounds = 15;
constexpr int kRunnersUp = 3;
constexpr double kTieBand = 0.015;

bool is_winner(const TrialRecord& trial, const WinnerRecord& winner) {
  return trial.toolchain.digest() == winner.toolchain.digest() && trial.arch == winner.arch && trial.config == winner.config;
}

// The winner first, then the default and the best of the others.
std::vector<TrialRecord> contenders(const ShapeReport& shape) {
  std::vector<TrialRecord> chosen;
  for (const TrialRecord& trial : shape.trials)
    if (trial.status == TrialStatus::kOk && is_winner(trial, *shape.winner)) chosen.push_back(trial);
  int others = 0;
  for (const TrialRecord& trial : shape.trials) {
    if (trial.status != TrialStatus::kOk || is_winner(trial, *shape.winner)) continue;
    if (trial.is_default || others++ < kRunnersUp) chosen.push_back(trial);
  }
  return chosen;
}

KernelRequest request_for(const TuneTarget& target, const KernelSpec& spec, const TrialRecord& trial) {
  for (const Family& family : target.families(spec)) {
    if (family.kernel_template->name() != trial.toolchain.template_name || family.arch.name() != trial.arch) continue;
    return {trial.toolchain.template_name, trial.config, target.make(spec, {family, trial.config, trial.is_default})};
  }
  throw Error(ErrorCode::kInternal, fmt::format("no family {} for {}", trial.toolchain.template_name, trial.arch));
}

// How much slower the winner (number 0) was than the best of this run; *flipped when surely so.
double regret_of(const Race& race, const std::vector<int>& ids, bool* flipped) {
  const Timing winner = race.timing(ids.front());
  Timing best = winner;
  for (const int id : ids)
    if (race.num_samples(id) > 0 && race.timing(id).median_us < best.median_us) best = race.timing(id);
  *flipped = best.hi_us < winner.lo_us && winner.median_us > best.median_us * (1 + kTieBand);
  return best.median_us > 0 ? winner.median_us / best.median_us - 1 : 0;
}

RepeatReport repeat_final(const TuneTarget& target, MeasureBackend& backend, const ShapeReport& shape, int repeats, uint64_t seed) {
  RepeatReport report{shape.problem, repeats, 0, 0, 0};
  std::vector<KernelRequest> requests;
  for (const TrialRecord& trial : contenders(shape)) requests.push_back(request_for(target, spec_of(shape.problem), trial));
  for (int repeat = 0; repeat < repeats; ++repeat) {
    backend.restart();
    backend.open({shape.problem, seed + static_cast<uint64_t>(repeat), std::nullopt});
    std::vector<int> ids;
    for (size_t i = 0; i < requests.size(); ++i)
      if (!backend.prepare(static_cast<int>(i), requests[i], false).fault) ids.push_back(static_cast<int>(i));
    if (ids.empty() || ids.front() != 0) {
      ++report.flips;  // the winner itself did not run
      continue;
    }
    Race race(backend, {seed + static_cast<uint64_t>(repeat), 0.9, {}, {}});
    race.run(ids, kRounds);
    bool flipped = false;
    const double regret = regret_of(race, ids, &flipped);
    report.flips += flipped ? 1 : 0;
    report.mean_regret += regret / repeats;
    report.max_regret = std::max(report.max_regret, regret);
  }
  return report;
}

}  // namespace

std::vector<RepeatReport> repeat_finals(const TuneTarget& target, MeasureBackend& backend, const TuneReport& tuned, int repeats,
                                        uint64_t seed) {
  std::vector<RepeatReport> reports;
  for (const ShapeReport& shape : tuned.shapes)
    if (shape.winner && !contenders(shape).empty()) reports.push_back(repeat_final(target, backend, shape, repeats, seed));
  return reports;
}

Json repeats_json(const std::vector<RepeatReport>& reports) {
  Json list = Json::array();
  for (const RepeatReport& report : reports)
    list.push_back({{"problem", to_text(report.problem)},
                    {"repeats", report.repeats},
                    {"flips", report.flips},
                    {"mean_regret", report.mean_regret},
                    {"max_regret", report.max_regret}});
  return list;
}

std::string repeats_text(const std::vector<RepeatReport>& reports) {
  Table table({"problem", "repeats", "flips", "mean regret", "largest regret"});
  for (const RepeatReport& report : reports)
    table.add({short_text(report.problem), std::to_string(report.repeats), std::to_string(report.flips),
               fmt::format("{:.1f} %", 100 * report.mean_regret), fmt::format("{:.1f} %", 100 * report.max_regret)});
  return "finals repeated in fresh processes\n" + table.text();
}

}  // namespace attune::cli
