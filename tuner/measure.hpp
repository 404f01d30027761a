// SPDX-License-Identifier: Apache-2.0
// Race: interleaved timing of candidates on one backend. Every round takes one sample of each, in a
// new seeded order, so that drift of clocks and temperature hits all alike. Race divides a round's
// samples by how much longer the whole round took. It throws a round at low clocks away, and leaves
// candidates that are surely slower than the best out of later rounds (successive halving).
#pragma once

#include <functional>
#include <map>
#include <random>
#include <vector>

#include "tuner/backend.hpp"

namespace attune {

// Median with its 95 % order-statistic interval (binomial, no assumption on the distribution).
// Fewer than 6 samples have no such interval: the smallest and the largest stand in for it.
Timing summarize(std::vector<double> samples, int sm_clock_mhz = 0);

struct RaceOptions {
  uint64_t seed = 1;
  double sample_us = kShortSampleUs;
  double min_clock_ratio = 0.9;  // against the median clock of the rounds just before
  std::function<bool()> stop{};  // asked between rounds
};

class Race {
 public:
  Race(Sampler& sampler, RaceOptions options);

  // Makes up to `rounds` good rounds over `ids` and returns how many it made: fewer when stopped,
  // or when clocks stay low.
  int run(std::vector<int> ids, int rounds);
  // One round whose samples nobody keeps; returns its clock, 0 = not read.
  int warm_up(const std::vector<int>& ids);
  // Forgets all samples.
  void clear();

  Timing timing(int id) const;
  size_t num_samples(int id) const;
  const std::map<int, Fault>& faults() const { return faults_; }
  // Those of `ids` that may still be the fastest: lower bound not above the best upper bound.
  // Faulted ones are out.
  std::vector<int> survivors(const std::vector<int>& ids) const;

 private:
  Round whole_round(std::vector<int> order);
  Round shuffled_round(std::vector<int> ids);
  bool clock_is_low(int sm_clock_mhz);
  void add(const Round& round);
  std::vector<double> raw_samples(int id) const;
  // Raw medians of those that took part in every round.
  std::map<int, double> medians_of_steady() const;
  // Of each round: the logarithm of how much longer than usual it took those.
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
