// SPDX-License-Identifier: Apache-2.0
// Interleaved timing and its statistics; see measure.hpp.
#include "tuner/measure.hpp"

#include <algorithm>
#include <cmath>

namespace attune {
namespace {

constexpr double kConfidence = 0.95;
constexpr size_t kRecentRounds = 7;   // a lower clock is believed when 4 rounds of these had it
constexpr int kSmallestInterval = 6;  // 1 - 2 * 0.5^n reaches 0.95 at n = 6

// Largest k with P(k <= Binomial(n, 1/2) <= n - k) >= 0.95: samples k-1 and n-k (from 0) bound the
// median.
int interval_rank(int n) {
  double probability = std::pow(0.5, n);  // P(X = 0)
  double below = 0;                       // P(X < k)
  int rank = 0;
  while (rank < n / 2 && 1 - 2 * (below + probability) >= kConfidence) {
    below += probability;
    ++rank;
    probability *= static_cast<double>(n - rank + 1) / rank;
  }
  return rank;
}

double median_of_sorted(const std::vector<double>& sorted) {
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

int median_clock(std::vector<int> clocks) {
  if (clocks.empty()) return 0;
  std::sort(clocks.begin(), clocks.end());
  return clocks[clocks.size() / 2];
}

}  // namespace

Timing summarize(std::vector<double> samples, int sm_clock_mhz) {
  Timing timing;
  timing.sm_clock_mhz = sm_clock_mhz;
  timing.samples = static_cast<int>(samples.size());
  if (samples.empty()) return timing;
  std::sort(samples.begin(), samples.end());
  timing.median_us = median_of_sorted(samples);
  timing.min_us = samples.front();
  const size_t rank =
      timing.samples < kSmallestInterval ? 1 : static_cast<size_t>(interval_rank(timing.samples));
  timing.lo_us = samples[rank - 1];
  timing.hi_us = samples[samples.size() - rank];
  return timing;
}

Race::Race(MeasureBackend& backend, RaceOptions options)
    : backend_(backend), options_(std::move(options)), random_(options_.seed) {}

int Race::run(std::vector<int> ids, int rounds) {
  int done = 0;
  for (int tries = 0; done < rounds && tries < 2 * rounds; ++tries) {
    std::erase_if(ids, [&](int id) { return faults_.count(id) > 0; });
    if (ids.empty() || (options_.stop && options_.stop())) break;
    std::shuffle(ids.begin(), ids.end(), random_);
    const Round round = whole_round(ids);
    if (options_.after_round) options_.after_round();
    if (clock_is_low(round.sm_clock_mhz)) continue;
    add(round);
    ++done;
  }
  return done;
}

// A fault ends the backend's round; those after it get their sample all the same.
Round Race::whole_round(std::vector<int> order) {
  Round whole;
  while (!order.empty()) {
    const Round part = backend_.round(order);
    if (part.samples.empty()) break;
    for (const Sample& sample : part.samples) {
      if (sample.fault) faults_.emplace(sample.id, *sample.fault);
      std::erase(order, sample.id);
      whole.samples.push_back(sample);
    }
    if (whole.sm_clock_mhz == 0 ||
        (part.sm_clock_mhz > 0 && part.sm_clock_mhz < whole.sm_clock_mhz))
      whole.sm_clock_mhz = part.sm_clock_mhz;  // the lowest stands for the round
  }
  return whole;
}

void Race::add(const Round& round) {
  for (const Sample& sample : round.samples)
    if (!sample.fault) samples_[sample.id].push_back(sample.us);
}

// Against the rounds just before: a board that reaches its power limit stays at a lower clock, and that is then the clock to
// measure at, not a disturbance.
bool Race::clock_is_low(int sm_clock_mhz) {
  if (sm_clock_mhz <= 0) return false;
  clocks_.push_back(sm_clock_mhz);
  recent_clocks_.push_back(sm_clock_mhz);
  if (recent_clocks_.size() > kRecentRounds) recent_clocks_.erase(recent_clocks_.begin());
  return sm_clock_mhz < options_.min_clock_ratio * median_clock(recent_clocks_);
}

void Race::clear(const std::vector<int>& ids) {
  for (int id : ids) samples_.erase(id);
  recent_clocks_.clear();
}

Timing Race::timing(int id) const {
  const auto found = samples_.find(id);
  return summarize(found == samples_.end() ? std::vector<double>{} : found->second,
                   median_clock(clocks_));
}

size_t Race::num_samples(int id) const {
  const auto found = samples_.find(id);
  return found == samples_.end() ? 0 : found->second.size();
}

std::vector<int> Race::survivors(const std::vector<int>& ids) const {
  double best_hi = INFINITY;
  for (int id : ids)
    if (num_samples(id) > 0 && faults_.count(id) == 0)
      best_hi = std::min(best_hi, timing(id).hi_us);
  std::vector<int> alive;
  for (int id : ids)
    if (num_samples(id) > 0 && faults_.count(id) == 0 && timing(id).lo_us <= best_hi)
      alive.push_back(id);
  return alive;
}

}  // namespace attune
