// SPDX-License-Identifier: Apache-2.0
// The winner rule: examples of each clause, and properties over random sets of trials.
#include "cache/winner_rule.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

namespace attune {
namespace {

struct Sketch {
  double median_us = 100;
  double half_width_us = 0.1;
  bool is_default = false;
  int registers = 128;
  int shared_bytes = 1024;
  int64_t block_m = 64;
  TrialStatus status = TrialStatus::kOk;
};

TrialRecord trial_of(const Sketch& s, int64_t stages = 2) {
  TrialRecord t;
  t.toolchain.template_name = "prefill_sm80";
  t.arch = "sm_90a";
  t.config = Config({{"block_m", s.block_m}, {"block_n", 64}, {"kv_slots", stages}});
  t.is_default = s.is_default;
  t.status = s.status;
  t.timing = {s.median_us,
              s.median_us - s.half_width_us,
              s.median_us + s.half_width_us,
              s.median_us,
              30,
              0};
  t.info.registers = s.registers;
  t.shared_bytes = s.shared_bytes;
  return t;
}

size_t winner_of(const std::vector<TrialRecord>& trials) {
  return choose_winner(trials).value().index;
}
std::string why(const std::vector<TrialRecord>& trials) {
  return choose_winner(trials).value().why;
}

TEST(WinnerRule, FastestWinsOutsideTheBand) {
  const std::vector<TrialRecord> trials{trial_of({.median_us = 106.1, .is_default = true}),
                                        trial_of({.median_us = 100}), trial_of({.median_us = 130})};
  EXPECT_EQ(winner_of(trials), 1U);
  EXPECT_EQ(why(trials), "fastest by 6.1 %");
  EXPECT_EQ(choose_winner(trials)->candidates, 3);
  EXPECT_EQ(choose_winner(trials)->tied, 1);
}

TEST(WinnerRule, DefaultIsKeptInsideTheBandAndNotOutside) {
  EXPECT_EQ(winner_of({trial_of({.median_us = 100, .registers = 1}),
                       trial_of({.median_us = 100.99, .is_default = true})}),
            1U);
  EXPECT_EQ(winner_of({trial_of({.median_us = 100, .registers = 1}),
                       trial_of({.median_us = 101.2, .is_default = true})}),
            0U);
  EXPECT_EQ(why({trial_of({.median_us = 100}), trial_of({.median_us = 100.9, .is_default = true})}),
            "tie of 2, default kept");
}

TEST(WinnerRule, CombinedIntervalWidensTheBand) {
  // Half widths of 3 and 4 combine to 5, and the band adds 1: 5.9 is within, 6.1 is not.
  EXPECT_EQ(winner_of({trial_of({.median_us = 100, .half_width_us = 3}),
                       trial_of({.median_us = 105.9, .half_width_us = 4, .is_default = true})}),
            1U);
  EXPECT_EQ(winner_of({trial_of({.median_us = 100, .half_width_us = 3}),
                       trial_of({.median_us = 106.1, .half_width_us = 4, .is_default = true})}),
            0U);
}

TEST(WinnerRule, OnlyTheSidesBetweenTheMediansWidenTheBand) {
  TrialRecord fast = trial_of({.median_us = 100});
  TrialRecord slow = trial_of({.median_us = 105, .is_default = true});
  fast.timing.lo_us = 80, slow.timing.hi_us = 130;
  EXPECT_EQ(winner_of({fast, slow}), 0U);
  fast.timing.lo_us = 100, slow.timing.lo_us = 100.5, slow.timing.hi_us = 105;
  EXPECT_EQ(winner_of({fast, slow}), 1U);
}

TEST(WinnerRule, TiesBreakByRegistersThenSharedMemoryThenTileThenText) {
  EXPECT_EQ(why({trial_of({.registers = 128}), trial_of({.median_us = 100.9, .registers = 96})}),
            "tie of 2, fewer registers (96 against 128)");
  EXPECT_EQ(winner_of({trial_of({.shared_bytes = 2048}),
                       trial_of({.median_us = 100.9, .shared_bytes = 1024})}),
            1U);
  EXPECT_EQ(winner_of({trial_of({.block_m = 128}), trial_of({.median_us = 100.9, .block_m = 64})}),
            1U);
  EXPECT_EQ(winner_of({trial_of({}, 3), trial_of({.median_us = 100.9}, 2)}), 1U);
  EXPECT_EQ(
      winner_of({trial_of({.registers = -1}), trial_of({.median_us = 100.9, .registers = 255})}),
      1U)
      << "unknown comes last";
}

TEST(WinnerRule, NothingToChooseFrom) {
  EXPECT_FALSE(choose_winner({}).has_value());
  EXPECT_FALSE(choose_winner({trial_of({.status = TrialStatus::kWrongResult}),
                              trial_of({.median_us = 0}), trial_of({.median_us = NAN})})
                   .has_value());
  EXPECT_EQ(why({trial_of({}), trial_of({.median_us = 1, .status = TrialStatus::kTimedOut})}),
            "the only candidate that ran");
}

std::vector<TrialRecord> random_trials() {
  const size_t count = *rc::gen::inRange<size_t>(1, 12);
  std::vector<TrialRecord> trials;
  for (size_t i = 0; i < count; ++i) {
    Sketch s;
    s.median_us = *rc::gen::inRange(9700, 10600) / 100.0 +
                  static_cast<double>(i) * 1e-5;  // no two alike: one is the fastest
    s.half_width_us = *rc::gen::inRange(0, 200) / 100.0;
    s.is_default = i == 0 && *rc::gen::arbitrary<bool>();
    s.registers = *rc::gen::element(-1, 96, 128);
    s.shared_bytes = *rc::gen::element(-1, 1024, 2048);
    s.block_m = *rc::gen::element(64, 128);
    s.status = *rc::gen::weightedElement<TrialStatus>(
        {{5, TrialStatus::kOk}, {1, TrialStatus::kWrongResult}, {1, TrialStatus::kCompileFailed}});
    trials.push_back(trial_of(s, static_cast<int64_t>(i)));  // each its own config
  }
  return trials;
}

size_t fastest_of(const std::vector<TrialRecord>& trials) {
  size_t best = trials.size();
  for (size_t i = 0; i < trials.size(); ++i)
    if (trials[i].status == TrialStatus::kOk &&
        (best == trials.size() || trials[i].timing.median_us < trials[best].timing.median_us))
      best = i;
  return best;
}

// RapidCheck says in its output what it tried; a property that does not hold fails the test.
void check_property(const char* name, void (*property)()) {
  EXPECT_TRUE(rc::check(name, property));
}

TEST(WinnerRule, IsIndependentOfOrder) {
  check_property("permuting trials does not change the winner", [] {
    std::vector<TrialRecord> trials = random_trials();
    const auto before = choose_winner(trials);
    std::vector<TrialRecord> shuffled;
    for (const TrialRecord& t : trials)
      shuffled.insert(
          shuffled.begin() + *rc::gen::inRange<long>(0, static_cast<long>(shuffled.size()) + 1), t);
    const auto after = choose_winner(shuffled);
    RC_ASSERT(before.has_value() == after.has_value());
    if (!before) return;
    RC_ASSERT(trials[before->index].config.to_text() == shuffled[after->index].config.to_text());
    RC_ASSERT(before->why == after->why);
  });
}

TEST(WinnerRule, WinnerRanAndTiesWithTheFastest) {
  check_property("the winner is ok and within the band of the fastest", [] {
    const std::vector<TrialRecord> trials = random_trials();
    const auto choice = choose_winner(trials);
    const size_t fastest = fastest_of(trials);
    RC_ASSERT(choice.has_value() == (fastest < trials.size()));
    if (!choice) return;
    const TrialRecord& winner = trials[choice->index];
    RC_ASSERT(winner.status == TrialStatus::kOk);
    const double gap = winner.timing.median_us - trials[fastest].timing.median_us;
    const double wide = (trials[fastest].timing.hi_us - trials[fastest].timing.median_us) +
                        (winner.timing.median_us - winner.timing.lo_us);
    RC_ASSERT(gap <= kTieBand * trials[fastest].timing.median_us + wide + 1e-9);
  });
}

TEST(WinnerRule, DefaultInTheBandAlwaysWins) {
  check_property("a default that ties with the fastest wins", [] {
    const std::vector<TrialRecord> trials = random_trials();
    const auto choice = choose_winner(trials);
    if (!choice || !trials[0].is_default || trials[0].status != TrialStatus::kOk) return;
    RC_ASSERT((choice->index == 0) == ties_with(trials[fastest_of(trials)], trials[0]));
  });
}

TEST(WinnerRule, AnIntervalWiderThanAFifthOfTheMedianIsNoisy) {
  EXPECT_FALSE(is_noisy(Timing{.median_us = 100, .lo_us = 91, .hi_us = 110}));
  EXPECT_TRUE(is_noisy(Timing{.median_us = 100, .lo_us = 91, .hi_us = 112}));
  EXPECT_TRUE(is_noisy(Timing{.median_us = 2357.7, .lo_us = 2357.7, .hi_us = 3513.2}));
  EXPECT_FALSE(is_noisy(Timing{})) << "no time at all";
  WinnerRecord winner;
  winner.timing = {.median_us = 100, .lo_us = 99, .hi_us = 101};
  winner.default_timing = winner.timing;
  EXPECT_FALSE(is_noisy(winner));
  winner.default_timing.hi_us = 200;
  EXPECT_TRUE(is_noisy(winner)) << "no gain is known";
}

TEST(WinnerRule, FailedTrialsDoNotMatter) {
  check_property("removing failed trials does not change the winner", [] {
    const std::vector<TrialRecord> trials = random_trials();
    std::vector<TrialRecord> sound;
    std::copy_if(trials.begin(), trials.end(), std::back_inserter(sound),
                 [](const TrialRecord& t) { return t.status == TrialStatus::kOk; });
    const auto all = choose_winner(trials), some = choose_winner(sound);
    RC_ASSERT(all.has_value() == some.has_value());
    if (all) RC_ASSERT(trials[all->index].config.to_text() == sound[some->index].config.to_text());
  });
}

TEST(WinnerRule, MuchSlowerCandidatesDoNotMatter) {
  check_property("a candidate far behind changes nothing", [] {
    std::vector<TrialRecord> trials = random_trials();
    const auto before = choose_winner(trials);
    RC_PRE(before.has_value());
    trials.push_back(trial_of(
        {.median_us = 500, .half_width_us = 1, .registers = 1, .shared_bytes = 0, .block_m = 8},
        99));
    RC_ASSERT(choose_winner(trials)->index == before->index);
  });
}

}  // namespace
}  // namespace attune
