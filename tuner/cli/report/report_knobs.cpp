// SPDX-License-Identifier: Apache-2.0
// The importance of knobs: variance of log time between groups over its whole variance; see
// report_data.hpp.
#include <algorithm>
#include <cmath>
#include <map>

#include "tuner/cli/report/report_data.hpp"

namespace attune::cli {
namespace {

struct Sum {
  double sum = 0;
  double least = HUGE_VAL;
  int count = 0;
  double mean() const { return sum / count; }
  void add(double value) {
    sum += value;
    least = std::min(least, value);
    ++count;
  }
};

}  // namespace

std::vector<KnobEffect> knob_effects(const std::vector<TimedConfig>& trials) {
  std::map<size_t, Sum> problems;
  for (const TimedConfig& trial : trials) problems[trial.problem].add(std::log(trial.time_us));
  double whole = 0;
  std::map<std::string, std::map<int64_t, Sum>> beside_mean, beside_best;
  for (const TimedConfig& trial : trials) {
    const Sum& problem = problems[trial.problem];
    const double centred = std::log(trial.time_us) - problem.mean();
    whole += centred * centred;
    for (const auto& [knob, value] : trial.config->knobs()) {
      beside_mean[knob][value].add(centred);
      beside_best[knob][value].add(std::log(trial.time_us) - problem.least);
    }
  }
  std::vector<KnobEffect> effects;
  for (const auto& [knob, values] : beside_mean) {
    KnobEffect effect{knob, 0, {}};
    double between = 0;
    for (const auto& [value, sum] : values) {
      between += sum.count * sum.mean() * sum.mean();
      effect.values.push_back(
          {value, sum.count, std::expm1(sum.mean()), std::exp(beside_best[knob][value].least)});
    }
    effect.explained = whole > 0 ? std::min(between / whole, 1.0) : 0;
    effects.push_back(std::move(effect));
  }
  std::stable_sort(effects.begin(), effects.end(), [](const KnobEffect& a, const KnobEffect& b) {
    return a.explained > b.explained;
  });
  return effects;
}

}  // namespace attune::cli
