// SPDX-License-Identifier: Apache-2.0
// Race: interleaved timing of candidates on one backend. Each round takes one sample of each
// candidate, in a new seeded order, so that drift of clocks and temperature affects all candidates
// alike. Race divides a round's samples by how much longer than usual the whole round took. It
// discards rounds at low clocks. `survivors` finds the candidates that may still be the fastest
// (successive halving).
#pragma once

#include <functional>
#include <map>
#include <random>
#include <vector>

#include "tuner/measure/backend.hpp"

namespace attune {

// Returns the median and its 95 % order-statistic interval (binomial, no assumption on the
// distribution). Fewer than 6 samples have no such interval; then it is the range of the samples.
Timing summarize(std::vector<double> samples, int sm_clock_mhz = 0);

struct RaceOptions {
  uint64_t seed = 1;
  double sample_us = kShortSampleUs;
  double min_clock_ratio = 0.9;  // relative to the median clock of the rounds just before
  std::function<bool()> stop{};  // called between rounds
};

class Race {
 public:
  Race(Sampler& sampler, RaceOptions options);

  // Makes up to `rounds` good rounds over `ids` and returns their number. It is smaller if the race
  // is stopped, or if clocks stay low.
  int run(std::vector<int> ids, int rounds);
  // Makes one round and discards its samples; returns its clock, 0 if not read.
  int warm_up(const std::vector<int>& ids);
  // Forgets all samples.
  void clear();

  Timing timing(int id) const;
  size_t num_samples(int id) const;
  const std::map<int, Fault>& faults() const { return faults_; }
  // Returns the `ids` that may still be the fastest: their lower bound is not above the lowest
  // upper bound. Leaves out candidates that faulted.
  std::vector<int> survivors(const std::vector<int>& ids) const;

 private:
  Round whole_round(std::vector<int> order);
  Round shuffled_round(std::vector<int> ids);
  bool clock_is_low(int sm_clock_mhz);
  void add(const Round& round);
  std::vector<double> raw_samples(int id) const;
  // Returns raw medians of the candidates that took part in every round.
  std::map<int, double> medians_of_steady() const;
  // Returns for each round the logarithm of how much longer than usual these candidates took.
  std::vector<double> levels(const std::map<int, double>& steady) const;

  Sampler& sampler_;
  RaceOptions options_;
  std::mt19937_64 random_;
  std::vector<std::map<int, double>> rounds_;  // us by id
  std::map<int, Fault> faults_;
  std::vector<int> clocks_;
  std::vector<int> recent_clocks_;
};

}  // namespace attune
