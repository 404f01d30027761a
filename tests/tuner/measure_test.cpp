// SPDX-License-Identifier: Apache-2.0
// Statistics of samples, and racing on a scripted backend.
#include "tuner/measure/measure.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace attune {
namespace {

TEST(Summarize, MedianAndOrderStatisticInterval) {
  std::vector<double> samples;
  for (int i = 1; i <= 30; ++i) samples.push_back(i);
  std::shuffle(samples.begin(), samples.end(), std::mt19937(1));
  const Timing timing = summarize(samples, 1980);
  EXPECT_EQ(timing.median_us, 15.5);
  EXPECT_EQ(timing.lo_us, 10);  // textbook ranks for n = 30: 10 and 21
  EXPECT_EQ(timing.hi_us, 21);
  EXPECT_EQ(timing.min_us, 1);
  EXPECT_EQ(timing.samples, 30);
  EXPECT_EQ(timing.sm_clock_mhz, 1980);
}

TEST(Summarize, FewSamplesGiveTheirRange) {
  const Timing timing = summarize({5, 3, 9});
  EXPECT_EQ(timing.median_us, 5);
  EXPECT_EQ(timing.lo_us, 3);
  EXPECT_EQ(timing.hi_us, 9);
  EXPECT_EQ(summarize({}).samples, 0);
}

TEST(Summarize, IntervalCoversTheMedianAsOftenAsStated) {
  std::mt19937_64 random(5);
  std::exponential_distribution<double> skewed;
  for (const int n : {6, 9, 30}) {
    int covered = 0;
    constexpr int kTries = 4000;
    for (int i = 0; i < kTries; ++i) {
      std::vector<double> samples;
      for (int k = 0; k < n; ++k) samples.push_back(skewed(random));
      const Timing timing = summarize(samples);
      covered += timing.lo_us <= std::log(2.0) && std::log(2.0) <= timing.hi_us;
    }
    EXPECT_GE(covered, static_cast<int>(0.943 * kTries)) << n;
  }
}

// Kernel i takes 100 + i us, slower when the clock is low.
class ScriptedBackend : public Sampler {
 public:
  Round round(const std::vector<int>& order, double) override {
    orders.push_back(order);
    Round round;
    const int clock = num_rounds < clocks.size() ? clocks[num_rounds] : 2000;
    ++num_rounds;
    round.sm_clock_mhz = clock;
    for (int id : order) {
      if (id == faulty) {
        round.samples.push_back({id, 0, Fault{TrialStatus::kLaunchFailed, "lost", true}});
        return round;
      }
      round.samples.push_back({id, (100 + id) * 2000.0 / clock, std::nullopt});
    }
    return round;
  }

  std::vector<int> clocks;
  std::vector<std::vector<int>> orders;
  size_t num_rounds = 0;
  int faulty = -1;
};

TEST(Race, EveryRoundTimesAllInANewOrderThatTheSeedDecides) {
  ScriptedBackend first, second, other;
  Race(first, {.seed = 1}).run({0, 1, 2, 3, 4, 5, 6, 7}, 5);
  Race(second, {.seed = 1}).run({0, 1, 2, 3, 4, 5, 6, 7}, 5);
  Race(other, {.seed = 2}).run({0, 1, 2, 3, 4, 5, 6, 7}, 5);
  EXPECT_EQ(first.orders, second.orders);
  EXPECT_NE(first.orders, other.orders);
  EXPECT_NE(first.orders[0], first.orders[1]);
  for (std::vector<int> order : first.orders) {
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

TEST(Race, AClockThatStaysLowIsBelieved) {
  ScriptedBackend backend;
  backend.clocks = std::vector<int>(100, 1600);  // a board at its power limit
  std::fill_n(backend.clocks.begin(), 20, 1980);
  Race race(backend, {.seed = 1});
  EXPECT_EQ(race.run({0, 1}, 20), 20);
  EXPECT_GE(race.run({0, 1}, 3), 2);
  EXPECT_EQ(race.run({0, 1}, 10), 10);
  race.clear();
  EXPECT_EQ(race.run({0, 1}, 3), 3);
}

TEST(Race, RoundsAtLowClocksAreThrownAwayAndMadeUp) {
  ScriptedBackend backend;
  backend.clocks = {2000, 2000, 1500, 2000, 1700, 2000};
  Race race(backend, {.seed = 1});
  EXPECT_EQ(race.run({0, 1}, 4), 4);
  EXPECT_EQ(backend.num_rounds, 6U);
  EXPECT_DOUBLE_EQ(race.timing(1).hi_us, 101);
  EXPECT_EQ(race.timing(1).samples, 4);
}

// Clocks swing by a tenth from round to round; one of three kernels is 0.5 % slower.
TEST(Race, ASlowRoundForAllIsCancelledOut) {
  class Swinging : public Sampler {
   public:
    Round round(const std::vector<int>& order, double) override {
      const double level = std::uniform_real_distribution<double>(1, 1.1)(random_);
      Round round;
      for (int id : order)
        round.samples.push_back(
            {id,
             level * (id == 2 ? 100.5 : 100) * std::normal_distribution<double>(1, 0.001)(random_),
             std::nullopt});
      return round;
    }

   private:
    std::mt19937_64 random_{3};
  };
  Swinging sampler;
  Race race(sampler, {.seed = 1});
  race.run({0, 1, 2}, 15);
  const Timing first = race.timing(0), slower = race.timing(2);
  EXPECT_NEAR(slower.median_us / first.median_us, 1.005, 0.001);
  EXPECT_GT(slower.lo_us, first.hi_us) << "raw intervals are 5 % wide";
  EXPECT_GT(first.hi_us, first.lo_us);
  EXPECT_NEAR(first.median_us, 105, 2);
}

TEST(Race, AFaultTakesOnlyItsKernelOut) {
  ScriptedBackend backend;
  backend.faulty = 2;
  Race race(backend, {.seed = 1});
  race.run({0, 1, 2, 3}, 3);
  for (int id : {0, 1, 3}) EXPECT_EQ(race.num_samples(id), 3U) << id;
  EXPECT_EQ(race.faults().count(2), 1U);
  EXPECT_EQ(race.survivors({0, 1, 2, 3}), std::vector<int>{0});
}

TEST(Race, StopsOnRequest) {
  ScriptedBackend backend;
  int asked = 0;
  RaceOptions options;
  options.stop = [&] { return ++asked > 3; };
  Race race(backend, options);
  EXPECT_EQ(race.run({0, 1}, 10), 3);
}

}  // namespace
}  // namespace attune
