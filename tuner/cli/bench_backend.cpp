// SPDX-License-Identifier: Apache-2.0
// Timing of ready-made runners; see bench_backend.hpp.
#include "tuner/cli/bench_backend.hpp"

#include <algorithm>
#include <cmath>

namespace attune::cli {
namespace {

constexpr double kSampleUs =
    200;  // shorter launches are repeated until a sample lasts about this long
constexpr int kMaxLaunches = 200;

}  // namespace

BenchBackend::BenchBackend(const Device& device, const Problem& problem, uint64_t seed)
    : device_(device), inputs_(device, seed) {
  inputs_.open(problem);
}

double BenchBackend::sample_us(const Entry& entry) {
  const int first = next_set_;
  next_set_ += entry.launches;
  return device_.time_us(entry.launches, [&](int launch) {
    entry.runner(inputs_.set(first + launch));
  }) / entry.launches;
}

void BenchBackend::add(int id, Runner runner) {
  Entry entry{std::move(runner), 1};
  sample_us(entry);
  const double once = std::max(sample_us(entry), 1e-3);
  entry.launches = std::clamp(static_cast<int>(std::ceil(kSampleUs / once)), 1, kMaxLaunches);
  entries_.insert_or_assign(id, std::move(entry));
}

Round BenchBackend::round(const std::vector<int>& order) {
  Round round;
  for (const int id : order)
    round.samples.push_back({id, sample_us(entries_.at(id)), std::nullopt});
  round.sm_clock_mhz = device_.sm_clock_mhz();
  return round;
}

}  // namespace attune::cli
