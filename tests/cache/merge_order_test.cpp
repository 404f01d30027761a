// SPDX-License-Identifier: Apache-2.0
// Merging is free of order and idempotent: random stores, merged in every order, give the same rows
// and the same pins. And two devices of one class that differ are reported.
#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "cache/exchange.hpp"
#include "cache/pin_file.hpp"
#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MergeOrderTest : public StoreTest {
 protected:
  Store store(const std::string& name) { return Store::open(file(name), StoreMode::kReadWrite); }
  static std::string lines_of(const Store& store) {
    std::ostringstream out;
    export_lines(read_contents(store, {"", "", false}), out);
    return out.str();
  }
};

// Few values per field, so that rows often have equal identities, equal contents or ties.
std::string draw_created() {
  return "2026-01-0" + std::to_string(*rc::gen::inRange(1, 3)) + "T00:00:00.000Z";
}
Effort draw_effort() { return *rc::gen::element(Effort::kQuick, Effort::kNormal); }
int64_t draw_tile() { return *rc::gen::element<int64_t>(16, 32, 64); }
TuningKey draw_key() { return sample_key(*rc::gen::element<int64_t>(1024, 2048)); }

StoredTrial draw_trial() {
  TrialRecord trial = sample_trial(draw_tile());
  trial.effort = draw_effort();
  trial.timing.samples = *rc::gen::inRange(10, 12);
  trial.timing.median_us = *rc::gen::inRange(1, 4);
  trial.created = draw_created();
  trial.conditions = {*rc::gen::element<std::string>("580.1", "590.2"),
                      *rc::gen::element(0, 500, 700)};
  return {draw_key(), trial};
}

WinnerRecord draw_winner() {
  const TuningKey key = draw_key();
  WinnerRecord winner = sample_winner(key, draw_tile());
  winner.device = key.device;
  winner.policy = key.policy;
  winner.toolchain =
      sample_toolchain("t1", *rc::gen::element<std::string>("nvrtc 13.0", "nvrtc 13.1"));
  winner.effort = draw_effort();
  winner.complete = *rc::gen::arbitrary<bool>();
  winner.pinned = *rc::gen::inRange(0, 4) == 0;
  winner.timing.samples = *rc::gen::inRange(10, 12);
  winner.timing.median_us = *rc::gen::inRange(1, 4);
  winner.conditions = key.device.conditions;
  winner.created = draw_created();
  return winner;
}

StoreContents draw_contents() {
  StoreContents contents;
  for (int i = *rc::gen::inRange(0, 6); i > 0; --i) contents.trials.push_back(draw_trial());
  for (int i = *rc::gen::inRange(0, 6); i > 0; --i) contents.winners.push_back(draw_winner());
  return contents;
}

TEST_F(MergeOrderTest, AnyOrderOfMergesEndsWithTheSameRowsAndPins) {
  int n = 0;
  EXPECT_TRUE(rc::check("any order of merges gives equal rows and pins", [&] {
    std::vector<StoreContents> parts(3);
    for (StoreContents& part : parts) part = draw_contents();
    std::vector<size_t> order(parts.size());
    std::iota(order.begin(), order.end(), 0);
    std::string rows, pins;
    do {
      Store all = store("all" + std::to_string(n++));
      for (const size_t i : order) all.merge(parts[i]);
      const std::string once = lines_of(all);
      for (const size_t i : order) all.merge(parts[i]);
      RC_ASSERT(lines_of(all) == once);
      const std::string pinned = pins_of(all.all_winners()).text();
      if (rows.empty()) rows = once, pins = pinned;
      RC_ASSERT(once == rows);
      RC_ASSERT(pinned == pins);
      std::filesystem::remove(all.path());
    } while (std::next_permutation(order.begin(), order.end()));
  }));
}

// A merged store can be merged again like any other.
TEST_F(MergeOrderTest, MergesOfMergesEndWithTheSameRows) {
  int n = 0;
  EXPECT_TRUE(rc::check("(a + b) + c == a + (b + c)", [&] {
    const StoreContents a = draw_contents(), b = draw_contents(), c = draw_contents();
    Store left = store("l" + std::to_string(n)), right = store("r" + std::to_string(n)),
          inner = store("i" + std::to_string(n));
    ++n;
    left.merge(a), left.merge(b), left.merge(c);
    inner.merge(b), inner.merge(c);
    right.merge(a), right.merge(read_contents(inner));
    RC_ASSERT(lines_of(left) == lines_of(right));
  }));
}

StoreContents measured(double factor, const Conditions& conditions = {"580.1", 700}) {
  StoreContents contents;
  for (const int64_t tile : {16, 32, 64}) {
    TrialRecord trial = sample_trial(tile);
    trial.timing.median_us = 100.0 * factor;
    trial.created = "2026-02-01T00:00:00.000Z";
    trial.conditions = conditions;
    contents.trials.push_back({sample_key(), trial});
  }
  return contents;
}

TEST_F(MergeOrderTest, DevicesOfOneClassThatDifferAreReported) {
  Store into = store("into");
  EXPECT_THAT(into.merge(measured(1)).spread, IsEmpty()) << "one device alone";
  EXPECT_THAT(into.plan_merge(measured(1)).spread, IsEmpty()) << "the same measurement";
  EXPECT_THAT(into.plan_merge(measured(1.04)).spread, IsEmpty());
  EXPECT_THAT(into.plan_merge(measured(1.06)).spread,
              ElementsAre(HasSubstr("NVIDIA H200: the median of 3 kernels that both measured is "
                                    "6.0 % slower there; ")));
  EXPECT_THAT(into.plan_merge(measured(1 / 1.07, {"590.2", 0})).spread,
              ElementsAre(HasSubstr("7.0 % faster there (driver 580.1 here, 590.2 there)")));
  EXPECT_THAT(into.plan_merge(measured(1.3, {"580.1", 400})).spread,
              ElementsAre(HasSubstr("30.0 % slower there (power limit 700 W here, 400 W there)")));
  StoreContents failed = measured(2);
  for (StoredTrial& row : failed.trials) row.trial.status = TrialStatus::kWrongResult;
  EXPECT_THAT(into.plan_merge(failed).spread, IsEmpty());
}

}  // namespace
}  // namespace attune
