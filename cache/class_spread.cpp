// SPDX-License-Identifier: Apache-2.0
// Ratios of medians by class; see class_spread.hpp.
#include "cache/class_spread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attune {
namespace {

bool counts(const TrialRecord& trial) {
  return trial.status == TrialStatus::kOk && std::isfinite(trial.timing.median_us) &&
         trial.timing.median_us > 0;
}

// Returns the median; for an even count the mean of the two middle values.
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

void ClassSpread::add(const DeviceIdentity& device, const TrialRecord& mine,
                      const TrialRecord& theirs) {
  const bool same = mine.created == theirs.created &&
                    mine.timing.samples == theirs.timing.samples &&
                    mine.timing.median_us == theirs.timing.median_us;
  if (same || !counts(mine) || !counts(theirs)) return;
  Class& one = classes_[device.digest()];
  one.title = device.title();
  one.ratios.push_back(theirs.timing.median_us / mine.timing.median_us);
  const std::string conditions =
      difference(mine.conditions, theirs.conditions, "{} here, {} there");
  if (!conditions.empty()) one.conditions = conditions;
}

std::vector<std::string> ClassSpread::sentences() const {
  std::vector<std::string> sentences;
  for (const auto& [digest, one] : classes_) {
    const double ratio = median(one.ratios);
    if (std::max(ratio, 1 / ratio) < kClassSpread) continue;
    sentences.push_back(fmt::format(
        "{}: the median of {} kernel{} that both measured is {:.1f} % {} there{}; devices of one "
        "class should agree: look at power limits, clocks and cooling",
        one.title, one.ratios.size(), one.ratios.size() == 1 ? "" : "s",
        100 * (std::max(ratio, 1 / ratio) - 1), ratio > 1 ? "slower" : "faster",
        one.conditions.empty() ? "" : " (" + one.conditions + ")"));
  }
  return sentences;
}

}  // namespace attune
