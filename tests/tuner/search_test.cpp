// SPDX-License-Identifier: Apache-2.0
// The candidates that the search proposes, and their order; and how the compile pool makes them.
#include "tuner/search/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/thread_limit.hpp"
#include "tests/tuner/simulated_device.hpp"
#include "tuner/search/compile_pool.hpp"

namespace attune::testing {
namespace {

class SearchTest : public ::testing::Test {
 protected:
  SearchTask task(std::vector<Family> families) const {
    const Problem problem = llama_problem(1024);
    return {std::make_shared<SearchSpaces>(spec_of(problem), std::move(families)),
            shape_of(problem),
            {132, 50 << 20}};
  }
  static std::set<std::string> texts(const std::vector<TuneCandidate>& candidates) {
    std::set<std::string> all;
    for (const TuneCandidate& candidate : candidates) all.insert(candidate.text());
    return all;
  }

  const World world_{{.seed = 21}};
  const SimulatedTemplate best_{world_}, other_{world_, "simulated_sm80"};
  const Family first_{&best_, parse_arch("sm_90")}, second_{&other_, parse_arch("sm_90")};
};

TEST_F(SearchTest, TheDefaultIsFirstAndNoConfigComesTwice) {
  const SearchTask t = task({first_, second_});
  const std::vector<TuneCandidate> found = first_candidates(t, effort_plan(Effort::kNormal), 1, {});
  EXPECT_TRUE(found[0].is_default);
  EXPECT_EQ(found[0].config, best_.default_config({}, {}, {}, DeviceFacts()));
  EXPECT_EQ(texts(found).size(), found.size());
  EXPECT_EQ(std::count_if(found.begin(), found.end(),
                          [](const TuneCandidate& c) { return c.is_default; }),
            1);
}

TEST_F(SearchTest, OtherFamiliesTakePartWithTheirDefault) {
  const std::vector<TuneCandidate> found =
      first_candidates(task({first_, second_}), effort_plan(Effort::kNormal), 1, {});
  const auto of_second = std::count_if(found.begin(), found.end(), [&](const TuneCandidate& c) {
    return c.family.kernel_template == &other_;
  });
  EXPECT_EQ(of_second, 1);
  const std::vector<TuneCandidate> all =
      first_candidates(task({first_, second_}), effort_plan(Effort::kExhaustive), 1, {});
  EXPECT_EQ(all.size(), 2 * best_.space({}, {}).enumerate().size());
}

// A group is several algorithms whose predicted costs compare. So the best predicted candidates
// come from all of its families.
TEST_F(SearchTest, FamiliesOfAGroupAreSearchedTogether) {
  class Grouped : public SimulatedTemplate {
   public:
    using SimulatedTemplate::SimulatedTemplate;
    std::string_view group() const override { return "simulated"; }
  } one(world_, "one"), two(world_, "two");
  const Arch arch = parse_arch("sm_90");
  std::map<const KernelTemplate*, int> counts;
  for (const TuneCandidate& c : first_candidates(task({{&one, arch}, {&two, arch}, second_}),
                                                 effort_plan(Effort::kNormal), 1, {}))
    ++counts[c.family.kernel_template];
  EXPECT_GT(counts[&one], 1);
  EXPECT_GT(counts[&two], 1);
  EXPECT_EQ(counts[&other_], 1);
}

// For the whole space, and for the neighbours of a winner.
TEST_F(SearchTest, ConfigsUnsuitableForTheShapeAreNotProposed) {
  class Picky : public SimulatedTemplate {
   public:
    using SimulatedTemplate::SimulatedTemplate;
    std::optional<std::string> unfit(const KernelSpec&, const Config& config,
                                     const Shape& shape) const override {
      EXPECT_EQ(shape.seqlen_q, 1024);
      const Knob first = space({}, {}).knobs().front();
      if (config.at(first.name) != first.values.back()) return std::nullopt;
      return "too large";
    }
  } picky(world_, "picky");
  const SearchTask t = task({{&picky, parse_arch("sm_90")}});
  const Knob first = picky.space({}, {}).knobs().front();
  const auto is_unfit = [&](const TuneCandidate& c) {
    return c.config.at(first.name) == first.values.back();
  };
  const std::vector<Config> all = picky.space({}, {}).enumerate();
  const auto large = std::find_if(all.begin(), all.end(), [&](const Config& c) {
    return c.at(first.name) == first.values.back();
  });
  ASSERT_NE(large, all.end());
  const TuneCandidate hint{t.families().front(), *large, false};
  std::vector<TuneCandidate> found =
      first_candidates(t, effort_plan(Effort::kExhaustive), 1, {hint});
  ASSERT_FALSE(found.empty());
  EXPECT_LT(found.size(), all.size());
  EXPECT_TRUE(std::none_of(found.begin(), found.end(), is_unfit));
  found = neighbourhood(t, {hint}, {}, 1000);
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(std::none_of(found.begin(), found.end(), is_unfit));
}

TEST_F(SearchTest, HalfOfThePredictedAreOfDifferentTiles) {
  const std::vector<TuneCandidate> found =
      first_candidates(task({first_}), effort_plan(Effort::kNormal), 1, {});
  std::set<std::pair<int64_t, int64_t>> tiles;
  for (const TuneCandidate& c : found)
    tiles.insert({c.config.at("block_m"), c.config.at("block_n")});
  EXPECT_GE(tiles.size(), static_cast<size_t>(effort_plan(Effort::kNormal).predicted / 2));
  EXPECT_LE(found.size(), 25U);
}

TEST_F(SearchTest, IllegalHintsAreLeftOutAndLegalOnesTried) {
  const TuneCandidate legal{first_, parse_config("block_m=32,block_n=96,stages=4,warps=2"), true};
  const TuneCandidate illegal{first_, parse_config("block_m=32,block_n=128,stages=4,warps=2"),
                              false};
  const std::vector<TuneCandidate> found =
      first_candidates(task({first_}), effort_plan(Effort::kQuick), 1, {legal, illegal});
  EXPECT_EQ(found[1].config, legal.config);
  EXPECT_FALSE(found[1].is_default);
  EXPECT_EQ(texts(found).count(illegal.text()), 0U);
}

TEST_F(SearchTest, SameSeedSameCandidates) {
  const SearchTask t = task({first_});
  const EffortPlan plan = effort_plan(Effort::kNormal);
  EXPECT_EQ(texts(first_candidates(t, plan, 5, {})), texts(first_candidates(t, plan, 5, {})));
  EXPECT_NE(texts(first_candidates(t, plan, 5, {})), texts(first_candidates(t, plan, 6, {})));
}

TEST_F(SearchTest, NeighboursAreNearLegalAndNew) {
  const SearchTask t = task({first_});
  const TuneCandidate centre{first_, parse_config("block_m=64,block_n=128,stages=3,warps=4"),
                             false};  // stages cannot grow
  const std::vector<TuneCandidate> near = neighbourhood(t, {centre}, {}, 100);
  const SearchSpace space = best_.space({}, {});
  std::set<std::string> tried;
  int distance_one = 0;
  for (const TuneCandidate& c : near) {
    EXPECT_FALSE(space.broken(c.config));
    int differ = 0;
    for (const auto& [knob, value] : c.config.knobs()) differ += centre.config.at(knob) != value;
    EXPECT_GE(differ, 1);
    EXPECT_LE(differ, 2);
    EXPECT_FALSE(differ == 1 && static_cast<size_t>(distance_one) < tried.size())
        << "one knob comes before two";
    distance_one += differ == 1;
    tried.insert(c.text());
  }
  EXPECT_EQ(distance_one, 3 + 3 + 2 + 2);
  for (const TuneCandidate& c : neighbourhood(t, {centre}, tried, 100))
    EXPECT_EQ(tried.count(c.text()), 0U);
  EXPECT_EQ(neighbourhood(t, {centre}, {}, 7).size(), 7U);
}

TEST_F(SearchTest, ThePoolCompilesEachCandidateOnceAndKeepsFaults) {
  const SimulatedTarget target(world_);
  const SearchTask t = task(target.families({}));
  const KernelSpec& spec = t.spaces->spec();
  CompilePool pool(target, 2);
  const std::vector<TuneCandidate> all =
      first_candidates(t, effort_plan(Effort::kExhaustive), 1, {});
  for (const TuneCandidate& c : all) pool.submit(spec, c);
  for (const TuneCandidate& c : all) pool.submit(spec, c);
  int failed = 0, spilled = 0;
  for (const TuneCandidate& c : all) {
    const auto compiled = pool.wait(spec, c, 60);
    ASSERT_TRUE(compiled);
    const Fate fate = world_.fate(c.config);
    EXPECT_EQ(compiled->fault.has_value(), fate == Fate::kCompileError || fate == Fate::kSpills);
    failed += fate == Fate::kCompileError;
    spilled += fate == Fate::kSpills;
    EXPECT_TRUE(fate == Fate::kCompileError || compiled->image->bytes == c.config.to_text());
    EXPECT_TRUE(fate != Fate::kSpills || compiled->fault->reason.find("24") != std::string::npos)
        << compiled->fault->reason;
  }
  EXPECT_GT(failed, 0);
  EXPECT_GT(spilled, 0);
  EXPECT_EQ(static_cast<size_t>(target.num_made), all.size());
  EXPECT_EQ(static_cast<size_t>(pool.num_compiled() + failed), all.size());
}

TEST_F(SearchTest, ThePoolCompilesWithTheThreadsThatTheSystemGrants) {
  const SimulatedTarget serving(world_);  // the task refers to it
  const SearchTask t = task(serving.families({}));
  const std::vector<TuneCandidate> some = first_candidates(t, effort_plan(Effort::kQuick), 1, {});
  for (const int granted : {0, 2}) {
    const ThreadLimit limit(granted);
    const SimulatedTarget target(world_);
    CompilePool pool(target, 6);
    EXPECT_EQ(limit.refused(), 1);
    for (const TuneCandidate& c : some) pool.submit(t.spaces->spec(), c);
    for (const TuneCandidate& c : some)
      EXPECT_TRUE(pool.wait(t.spaces->spec(), c, 60)) << granted << " threads";
    EXPECT_EQ(static_cast<size_t>(target.num_made), some.size());
  }
}

}  // namespace
}  // namespace attune::testing
