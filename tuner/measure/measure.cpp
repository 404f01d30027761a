// SPDX-License-Identifier: Apache-2.0
// Interleaved timing and its statistics; see measure.hpp.
#include "tuner/measure/measure.hpp"

#include <algorithm>
#include <cmath>

namespace attune {
namespace {

constexpr double kConfidence = 0.95;
constexpr size_t kRecentRounds = 7;   // a lower clock counts once 4 of these rounds had it
constexpr int kSmallestInterval = 6;  // 1 - 2 * 0.5^n reaches 0.95 at n = 6

// Returns the largest k with P(k <= Binomial(n, 1/2) <= n - k) >= 0.95: samples k-1 and n-k (from
// 0) bound the median.
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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return median_of_sorted(values);
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

Race::Race(Sampler& sampler, RaceOptions options)
    : sampler_(sampler), options_(std::move(options)), random_(options_.seed) {}

int Race::run(std::vector<int> ids, int rounds) {
  int done = 0;
  for (int tries = 0; done < rounds && tries < 2 * rounds; ++tries) {
    std::erase_if(ids, [&](int id) { return faults_.count(id) > 0; });
    if (ids.empty() || (options_.stop && options_.stop())) break;
    const Round round = shuffled_round(ids);
    if (clock_is_low(round.sm_clock_mhz)) continue;
    add(round);
    ++done;
  }
  return done;
}

int Race::warm_up(const std::vector<int>& ids) {
  const Round round = shuffled_round(ids);
  clock_is_low(round.sm_clock_mhz);  // later rounds are compared with this one, too
  return round.sm_clock_mhz;
}

Round Race::shuffled_round(std::vector<int> ids) {
  std::shuffle(ids.begin(), ids.end(), random_);
  return whole_round(std::move(ids));
}

// Makes a round. A fault ends the backend's round; the candidates after it still get their samples.
Round Race::whole_round(std::vector<int> order) {
  Round whole;
  while (!order.empty()) {
    const Round part = sampler_.round(order, options_.sample_us);
    if (part.samples.empty()) break;
    for (const Sample& sample : part.samples) {
      if (sample.fault) faults_.emplace(sample.id, *sample.fault);
      std::erase(order, sample.id);
      whole.samples.push_back(sample);
    }
    if (whole.sm_clock_mhz == 0 ||
        (part.sm_clock_mhz > 0 && part.sm_clock_mhz < whole.sm_clock_mhz))
      whole.sm_clock_mhz = part.sm_clock_mhz;  // a round counts with its lowest clock
  }
  return whole;
}

void Race::add(const Round& round) {
  std::map<int, double>& samples = rounds_.emplace_back();
  for (const Sample& sample : round.samples)
    if (!sample.fault) samples[sample.id] = sample.us;
}

// True if the clock is low compared with the rounds just before. A board at its power limit stays
// at a lower clock. Then that clock is the normal one, not a disturbance.
bool Race::clock_is_low(int sm_clock_mhz) {
  if (sm_clock_mhz <= 0) return false;
  clocks_.push_back(sm_clock_mhz);
  recent_clocks_.push_back(sm_clock_mhz);
  if (recent_clocks_.size() > kRecentRounds) recent_clocks_.erase(recent_clocks_.begin());
  return sm_clock_mhz < options_.min_clock_ratio * median_clock(recent_clocks_);
}

void Race::clear() {
  rounds_.clear();
  recent_clocks_.clear();
}

std::vector<double> Race::raw_samples(int id) const {
  std::vector<double> samples;
  for (const std::map<int, double>& round : rounds_)
    if (const auto found = round.find(id); found != round.end()) samples.push_back(found->second);
  return samples;
}

std::map<int, double> Race::medians_of_steady() const {
  std::map<int, double> medians;
  if (rounds_.empty()) return medians;
  for (const auto& [id, unused] : rounds_.back())
    if (const std::vector<double> all = raw_samples(id); all.size() == rounds_.size())
      medians[id] = median(all);
  return medians;
}

std::vector<double> Race::levels(const std::map<int, double>& steady) const {
  std::vector<double> levels;
  for (const std::map<int, double>& round : rounds_) {
    std::vector<double> logs;
    for (const auto& [id, median_us] : steady) logs.push_back(std::log(round.at(id) / median_us));
    std::sort(logs.begin(), logs.end());
    levels.push_back(logs[(logs.size() - 1) / 2]);  // the lower one of two: outliers are slow
  }
  const double usual = median(levels);
  for (double& level : levels) level -= usual;
  return levels;
}

// Returns a candidate's timing. A round's level contains a share of the noise of the candidates
// from which it is computed, and subtracting the level removes that share. The factor sqrt(n / (n -
// 1)) restores it, so that intervals of differences keep their width.
Timing Race::timing(int id) const {
  const std::map<int, double> steady = medians_of_steady();
  if (steady.size() < 2) return summarize(raw_samples(id), median_clock(clocks_));
  const std::vector<double> level = levels(steady);
  std::vector<double> logs;
  for (size_t i = 0; i < rounds_.size(); ++i)
    if (const auto found = rounds_[i].find(id); found != rounds_[i].end())
      logs.push_back(std::log(found->second) - level[i]);
  if (logs.empty()) return {};
  const double middle = median(logs);
  const auto n = static_cast<double>(steady.size());
  const double stretch = steady.count(id) > 0 ? std::sqrt(n / (n - 1)) : 1;
  std::vector<double> samples;
  for (const double value : logs) samples.push_back(std::exp(middle + stretch * (value - middle)));
  return summarize(std::move(samples), median_clock(clocks_));
}

size_t Race::num_samples(int id) const { return raw_samples(id).size(); }

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
