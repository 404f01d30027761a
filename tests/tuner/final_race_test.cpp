// SPDX-License-Identifier: Apache-2.0
// The final on a simulated device whose clock falls under sustained load. Its kernels lose
// different amounts by load and by single launches. The time under load must decide.
#include "tuner/search/final_race.hpp"

#include <gmock/gmock.h>

#include "cache/winner_rule.hpp"
#include "tests/tuner/simulated_tune.hpp"

namespace attune::testing {
namespace {

const char* const kUsual = "block_m=64,block_n=64,stages=2,warps=4";  // the default

// Returns a quiet device on which only the default and `other` work. Without load, `other` takes
// `share` of the default's time.
World world_of_two(const Config& other, double share, WorldOptions options) {
  options.bad_share = 0;
  World world(options);
  const SimulatedTemplate space(world);
  const Config usual = parse_config(kUsual);
  for (const Config& config : space.space({}, Arch()).enumerate())
    if (config != usual && config != other) world.set_fate(config, Fate::kWrong);
  const Shape shape = shape_of(llama_problem(1024));
  world.make_slower(other, share * world.true_us(usual, shape) / world.true_us(other, shape));
  return world;
}

// Returns a config that the search tries with any seed: the neighbour with the lowest predicted
// cost.
Config neighbour_of_default() { return parse_config("block_m=64,block_n=64,stages=3,warps=4"); }

const WorldOptions kQuiet{.noise = 0.005, .outliers = 0.02, .drift = 0.02, .clock_drops = 0.02};

TEST(FinalRace, AKernelThatLoadSlowsDownLosesThoughItIsFasterInShortBursts) {
  const Config other = neighbour_of_default();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions options = kQuiet;
    options.seed = seed;
    options.load_drop = 0.25;
    World world = world_of_two(other, 0.94, options);
    const Outcome cool = tune_simulated(world, {llama_problem(1024)}, seed);
    EXPECT_EQ(cool.report.shapes.at(0).winner->config, other) << "a lower clock alone is no reason";
    world.make_suffer(other, 0.12);
    const Outcome run = tune_simulated(world, {llama_problem(1024)}, seed);
    EXPECT_TRUE(run.report.shapes.at(0).winner->default_is_winner)
        << seed << " " << run.report.shapes[0].winner->why;
  }
}

TEST(FinalRace, CostsOfASingleLaunchDoNotCount) {
  const Config other = neighbour_of_default(), usual = parse_config(kUsual);
  const Shape shape = shape_of(llama_problem(1024));
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions options = kQuiet;
    options.seed = seed;
    World world = world_of_two(other, 1.02, options);
    world.make_lonely(usual, 0.06 * world.true_us(usual, shape));
    const Outcome run = tune_simulated(world, {llama_problem(1024)}, seed);
    EXPECT_TRUE(run.report.shapes.at(0).winner->default_is_winner) << seed;
  }
}

TEST(FinalRace, TimingsAreTakenOnTheLoadedDevice) {
  WorldOptions options{
      .noise = 0.002, .outliers = 0, .drift = 0, .clock_drops = 0, .load_drop = 0.25};
  const World world = world_of_two(neighbour_of_default(), 0.9, options);
  const Outcome run = tune_simulated(world, {llama_problem(1024)}, 1);
  const WinnerRecord& winner = *run.report.shapes.at(0).winner;
  const Shape shape = shape_of(llama_problem(1024));
  EXPECT_NEAR(winner.timing.median_us / world.loaded_us(winner.config, shape), 1, 0.03);
  EXPECT_NEAR(winner.default_timing.median_us / world.loaded_us(parse_config(kUsual), shape), 1,
              0.03);
}

// Load affects configs differently. The winner must not be slower than the default, and two tunes
// must find winners of the same speed.
TEST(FinalRace, TunedIsNotSlowerThanTheDefaultUnderLoadAndTwoTunesAgree) {
  constexpr int kWorlds = 40;
  int apart = 0;
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    World world({.seed = seed, .noise = 0.01, .load_drop = 0.25});
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> share(0, 0.05);
    for (const Config& config : SimulatedTemplate(world).space({}, Arch()).enumerate())
      world.make_suffer(config, share(random));
    const std::vector<Problem> problems{llama_problem(1024), llama_problem(8192)};
    const Outcome first = tune_simulated(world, problems, 2 * seed);
    const Outcome second = tune_simulated(world, problems, 2 * seed + 1);
    for (size_t i = 0; i < problems.size(); ++i) {
      const Shape shape = shape_of(problems[i]);
      const auto us = [&](const Outcome& run) {
        return world.loaded_us(run.report.shapes.at(i).winner->config, shape);
      };
      const double usual_us = world.loaded_us(parse_config(kUsual), shape);
      EXPECT_LE(us(first), 1.01 * usual_us) << seed;
      EXPECT_LE(us(second), 1.01 * usual_us) << seed;
      apart += std::max(us(first), us(second)) > 1.02 * std::min(us(first), us(second)) ? 1 : 0;
    }
  }
  RecordProperty("tunes_apart", apart);
  std::printf("%d of %d pairs of tunes are more than 2 %% apart\n", apart, 2 * kWorlds);
  EXPECT_LE(apart, 4);
}

// A very small difference is no reason to leave the default, whatever the noise.
TEST(FinalRace, LessThanAPercentKeepsTheDefault) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const World world = world_of_two(neighbour_of_default(), 0.993,
                                     {.seed = seed, .noise = 0.02, .load_drop = 0.2});
    const Outcome run = tune_simulated(world, {llama_problem(1024)}, seed);
    EXPECT_TRUE(run.report.shapes.at(0).winner->default_is_winner)
        << seed << " " << run.report.shapes[0].winner->why;
  }
}

// On a busy machine, samples may spread so far that times mean little. The tune says so, and the
// next tune measures again.
TEST_F(TuneStoreTest, ATuneThatFoundOnlyNoiseSaysSoAndIsMeasuredAnew) {
  const World busy({.seed = 14, .noise = 0.9}), quiet({.seed = 14});
  Store store = open_store();
  const ShapeReport first = tune_simulated(busy, {llama_problem(1024)}, 1, &store).report.shapes[0];
  ASSERT_TRUE(first.winner);
  ASSERT_TRUE(is_noisy(*first.winner))
      << first.winner->timing.lo_us << " to " << first.winner->timing.hi_us;
  EXPECT_THAT(first.note, ::testing::HasSubstr("noisy: its times vary too much"));
  const ShapeReport second =
      tune_simulated(quiet, {llama_problem(1024)}, 2, &store).report.shapes[0];
  EXPECT_FALSE(second.already_tuned);
  EXPECT_GT(second.measured, 0);
  ASSERT_TRUE(second.winner);
  EXPECT_FALSE(is_noisy(*second.winner));
  EXPECT_THAT(second.note, ::testing::Not(::testing::HasSubstr("noisy")));
  EXPECT_LT(regret(quiet, second), 0.05);
  EXPECT_TRUE(
      tune_simulated(quiet, {llama_problem(1024)}, 3, &store).report.shapes[0].already_tuned);
}

}  // namespace
}  // namespace attune::testing
