// SPDX-License-Identifier: Apache-2.0
// Times ready-made runners; see bench_backend.hpp.
#include "tuner/cli/commands/bench_backend.hpp"

#include <algorithm>
#include <cmath>

namespace attune::cli {
namespace {

constexpr int kMaxLaunches = 200;

}  // namespace

BenchBackend::BenchBackend(const Device& device, const Problem& problem, uint64_t seed)
    : device_(device), inputs_(device, seed) {
  inputs_.open(problem);
}

double BenchBackend::time_us(const Entry& entry, int launches) {
  const int first = next_set_;
  next_set_ += launches;
  return device_.time_us(launches, [&](int launch) { entry.runner(inputs_.set(first + launch)); }) /
         launches;
}

void BenchBackend::add(int id, Runner runner) {
  Entry entry{std::move(runner)};
  time_us(entry, 1);
  entry.launch_us = std::max(time_us(entry, 1), 1e-3);
  entries_.insert_or_assign(id, std::move(entry));
}

Round BenchBackend::round(const std::vector<int>& order, double sample_us) {
  Round round;
  for (const int id : order) {
    const Entry& entry = entries_.at(id);
    const int launches =
        std::clamp(static_cast<int>(std::ceil(sample_us / entry.launch_us)), 1, kMaxLaunches);
    round.samples.push_back({id, time_us(entry, launches), std::nullopt});
  }
  round.sm_clock_mhz = device_.sm_clock_mhz();
  return round;
}

}  // namespace attune::cli
