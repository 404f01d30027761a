// SPDX-License-Identifier: Apache-2.0
// The tune loop on a simulated device. It must find the fastest kernel in spite of noise, bad
// candidates must not affect others, and it must resume exactly. For budgets see
// tune_budget_test.cpp.
#include "tuner/search/tune_loop.hpp"

#include <gmock/gmock.h>

#include "cache/winner_rule.hpp"
#include "tests/tuner/simulated_tune.hpp"

namespace attune::testing {
namespace {

TEST(TuneLoop, FindsTheFastestKernelInSpiteOfNoise) {
  constexpr int kWorlds = 100;
  double sum = 0, worst = 0;
  int flips = 0, rows = 0;
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    const World world({.seed = seed});
    const Outcome first =
        tune_simulated(world, {llama_problem(1024), llama_problem(8192)}, 2 * seed);
    const Outcome second =
        tune_simulated(world, {llama_problem(1024), llama_problem(8192)}, 2 * seed + 1);
    for (size_t i = 0; i < first.report.shapes.size(); ++i, ++rows) {
      ASSERT_TRUE(first.report.shapes[i].winner && second.report.shapes[i].winner);
      const double r = regret(world, first.report.shapes[i]);
      sum += r;
      worst = std::max(worst, r);
      const double a = true_us(world, first.report.shapes[i]),
                   b = true_us(world, second.report.shapes[i]);
      // Counts tunes that disagree by more than the tie band explains.
      flips += std::max(a, b) / std::min(a, b) > 1.02 ? 1 : 0;
    }
  }
  RecordProperty("mean_regret_percent", std::to_string(100 * sum / rows));
  RecordProperty("worst_regret_percent", std::to_string(100 * worst));
  std::printf("mean regret %.3f %%, worst %.2f %%, flips %d of %d\n", 100 * sum / rows, 100 * worst,
              flips, rows);
  EXPECT_LT(sum / rows, 0.01);
  EXPECT_LE(flips, rows / 100);
}

TEST(TuneLoop, BadCandidatesNeverWinAndCostOnlyThemselves) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const World world({.seed = seed, .bad_share = 0.6});
    const Outcome run = tune_simulated(world, {llama_problem(1024)}, seed);
    const ShapeReport& shape = run.report.shapes.at(0);
    ASSERT_TRUE(shape.winner) << seed;
    EXPECT_EQ(world.fate(shape.winner->config), Fate::kGood);
    int failed = 0;
    for (const TrialRecord& trial : shape.trials) {
      const Fate fate = world.fate(trial.config);
      EXPECT_EQ(trial.status == TrialStatus::kOk,
                fate == Fate::kGood || (fate == Fate::kCrashLater && trial.timing.samples == 1))
          << trial.config.to_text();
      failed += trial.status != TrialStatus::kOk;
      EXPECT_EQ(trial.status != TrialStatus::kOk, !trial.reason.empty());
      EXPECT_TRUE(fate != Fate::kSpills || trial.status == TrialStatus::kCompileFailed);
      EXPECT_TRUE(fate != Fate::kHang || trial.status == TrialStatus::kTimedOut);
    }
    EXPECT_GT(failed, 0);
  }
}

// A runtime launches it where nothing was tuned, so the tuner must know its time.
TEST(TuneLoop, ADefaultThatSpillsTakesPart) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    World world({.seed = seed});
    const Config usual = SimulatedTemplate(world).default_config({}, Arch(), {}, {});
    world.set_fate(usual, Fate::kSpills);
    const Outcome run = tune_simulated(world, {llama_problem(1024)}, seed);
    const ShapeReport& shape = run.report.shapes.at(0);
    ASSERT_TRUE(shape.winner) << seed;
    int defaults = 0;
    for (const TrialRecord& trial : shape.trials) {
      const bool spills = world.fate(trial.config) == Fate::kSpills;
      EXPECT_EQ(trial.status == TrialStatus::kOk && spills, trial.config == usual)
          << trial.config.to_text();
      defaults += trial.is_default && trial.timing.median_us > 0;
    }
    EXPECT_EQ(defaults, 1);
  }
}

TEST(TuneLoop, FormsOfOneProblemAreTunedOnce) {
  const World world({.seed = 1});
  Problem top_left = llama_problem(1024), window = llama_problem(1024), hides = llama_problem(1024);
  top_left.mask = Mask::kCausalTopLeft;
  window.window_left = 1023;
  hides.window_left = 500;
  const Outcome run = tune_simulated(world, {top_left, llama_problem(1024), window, hides}, 1);
  ASSERT_EQ(run.report.shapes.size(), 2U);
  EXPECT_EQ(run.report.shapes[0].problem, llama_problem(1024));
  EXPECT_EQ(run.report.shapes[0].winner->spec, spec_of(llama_problem(1024)));
  EXPECT_EQ(run.report.shapes[1].problem, hides);
}

// It must not matter that the search met a config at one shape and not at another.
TEST(TuneLoop, AWinnerIsTriedAtAllShapesOfItsSpec) {
  Problem other = llama_problem(2048);
  other.num_heads_kv = other.num_heads_q;
  std::vector<Problem> problems = llama_problems();
  problems.push_back(other);
  for (const Target kind : {Target::kCuda, Target::kCpu}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      const World world({.seed = seed});
      SimulatedClock clock;
      SimulatedTarget target(world);
      target.kind_ = kind;
      SimulatedBackend backend(world, clock, seed);
      TuneOptions options;
      options.effort = Effort::kQuick;
      options.now = [&clock] { return clock.now_s; };
      const TuneReport report = tune(target, backend, nullptr, problems, options);
      for (const ShapeReport& winner : report.shapes)
        for (const ShapeReport& shape : report.shapes) {
          ASSERT_TRUE(winner.winner && shape.winner);
          if (!(winner.winner->spec == shape.winner->spec)) continue;
          EXPECT_TRUE(std::any_of(
              shape.trials.begin(), shape.trials.end(),
              [&](const TrialRecord& trial) { return trial.config == winner.winner->config; }))
              << seed << ": " << winner.winner->config.to_text() << " at "
              << to_text(shape.problem);
          EXPECT_TRUE(shape.complete) << shape.note;
        }
    }
  }
}

TEST(TuneLoop, TunedIsNeverSlowerThanDefault) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const World world({.seed = seed});
    for (const ShapeReport& shape :
         tune_simulated(world, {llama_problem(512), llama_problem(4096)}, seed).report.shapes) {
      const Config usual = parse_config("block_m=64,block_n=64,stages=2,warps=4");
      EXPECT_LE(true_us(world, shape), world.true_us(usual, shape_of(shape.problem)) * 1.005);
      EXPECT_GT(shape.winner->default_timing.samples, 0);
      EXPECT_EQ(shape.winner->default_config, usual);
    }
  }
}

TEST(TuneLoop, NormalEffortTunesEightShapesWithinAMinute) {
  const World world({.seed = 3});
  const Outcome run = tune_simulated(world, llama_problems(), 1);
  EXPECT_LE(run.clock.now_s, 60);
  for (const ShapeReport& shape : run.report.shapes) EXPECT_TRUE(shape.complete) << shape.note;
}

// Both if they are tuned in turn, and one after the other.
TEST(TuneLoop, ShapesOfOneSpecShareCompiledKernels) {
  const World world({.seed = 5, .bad_share = 0});
  for (const Target kind : {Target::kCuda, Target::kCpu}) {
    SimulatedClock clock;
    SimulatedTarget target(world);
    target.kind_ = kind;
    SimulatedBackend backend(world, clock, 1);
    TuneOptions options;
    options.now = [&clock] { return clock.now_s; };
    tune(target, backend, nullptr, llama_problems(), options);
    EXPECT_EQ(static_cast<size_t>(target.num_made), backend.num_prepared.size() + 1)
        << "each once, and the reference";
  }
}

TEST(TuneLoop, ExhaustiveTriesTheWholeSpace) {
  const World world({.seed = 11, .bad_share = 0});
  const Outcome run =
      tune_simulated(world, {llama_problem(1024)}, 1, nullptr, {.effort = Effort::kExhaustive});
  const SimulatedTemplate space(world);
  EXPECT_EQ(run.report.shapes[0].trials.size(), space.space({}, Arch()).enumerate().size());
  EXPECT_LT(regret(world, run.report.shapes[0]), 0.02);
}

TEST(TuneLoop, CandidatesThatTieGoToTheDefault) {
  World world(
      {.seed = 2, .noise = 0.002, .outliers = 0, .drift = 0, .clock_drops = 0, .bad_share = 0});
  SimulatedTemplate space(world);
  const Config usual = space.default_config({}, Arch(), {}, DeviceFacts());
  for (const Config& config :
       space.space({}, Arch()).enumerate())  // keeps configs that are at most 1 % faster, or slower
    if (world.true_us(config, shape_of(llama_problem(1024))) <
        0.99 * world.true_us(usual, shape_of(llama_problem(1024))))
      world.set_fate(config, Fate::kWrong);
  const Outcome run = tune_simulated(world, {llama_problem(1024)}, 1);
  EXPECT_EQ(run.report.shapes[0].winner->config, usual);
  EXPECT_TRUE(run.report.shapes[0].winner->default_is_winner);
}

TEST_F(TuneStoreTest, ASecondTuneMeasuresNothing) {
  const World world({.seed = 4});
  Store store = open_store();
  const Outcome first = tune_simulated(world, llama_problems(), 1, &store);
  const Outcome second = tune_simulated(world, llama_problems(), 2, &store);
  EXPECT_EQ(second.num_prepared.size(), 0U);
  EXPECT_EQ(second.num_made, 0);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(second.report.shapes[i].already_tuned);
    EXPECT_EQ(second.report.shapes[i].winner->config, first.report.shapes[i].winner->config);
  }
}

TEST_F(TuneStoreTest, AnInterruptedTuneGoesOnWhereItStopped) {
  const World world({.seed = 6});
  for (const int stop_after : {20, 60, 120, 200}) {
    std::filesystem::remove(folder_ / "store.db");
    Store store = open_store();
    int asked = 0;
    TuneOptions options;
    options.stop = [&] { return ++asked > stop_after; };
    const Outcome first =
        tune_simulated(world, {llama_problem(1024), llama_problem(8192)}, 1, &store, options);
    EXPECT_TRUE(first.report.interrupted);
    const TuningKey key{spec_of(llama_problem(1024)), shape_of(llama_problem(1024)),
                        SimulatedTarget(world).identity_, measure_policy()};
    const std::vector<TrialRecord> kept = store.trials(key);
    const Outcome second = tune_simulated(world, {llama_problem(1024)}, 2, &store);
    ASSERT_TRUE(second.report.shapes[0].winner);
    int again = 0;
    for (const TrialRecord& trial : kept)
      again += second.num_prepared.count(trial.config.to_text()) ? 1 : 0;
    EXPECT_LE(again, 6) << "only finalists are timed again, " << kept.size()
                        << " trials were stored";
    EXPECT_EQ(second.report.shapes[0].reused, static_cast<int>(kept.size()));
    EXPECT_LT(regret(world, second.report.shapes[0]), 0.05);
  }
}

TEST_F(TuneStoreTest, FailedTrialsAreRememberedAndRetriedOnRequest) {
  const World world({.seed = 8, .bad_share = 0.5});
  Store store = open_store();
  const Outcome first = tune_simulated(world, {llama_problem(1024)}, 1, &store, {.budget_s = 300});
  const Outcome second = tune_simulated(world, {llama_problem(1024)}, 1, &store, {.budget_s = 300});
  EXPECT_TRUE(second.num_prepared.empty());
  const Outcome third = tune_simulated(world, {llama_problem(1024)}, 1, &store,
                                       {.budget_s = 300, .retry_failed = true});
  EXPECT_FALSE(third.num_prepared.empty());
  for (const auto& [text, unused] : third.num_prepared)
    EXPECT_TRUE(world.fate(parse_config(text)) != Fate::kGood || third.num_prepared.at(text) == 1)
        << text;
}

TEST_F(TuneStoreTest, AHigherEffortReplacesALowerOne) {
  const World world({.seed = 9});
  Store store = open_store();
  tune_simulated(world, {llama_problem(1024)}, 1, &store, {.effort = Effort::kQuick});
  const Outcome normal = tune_simulated(world, {llama_problem(1024)}, 2, &store);
  EXPECT_EQ(normal.report.shapes[0].reused, 0);
  EXPECT_EQ(normal.report.shapes[0].winner->effort, Effort::kNormal);
  const Outcome quick =
      tune_simulated(world, {llama_problem(1024)}, 3, &store, {.effort = Effort::kQuick});
  EXPECT_TRUE(quick.report.shapes[0].already_tuned);
}

TEST_F(TuneStoreTest, ANewTemplateTextIsTunedAnew) {
  const World world({.seed = 12});
  Store store = open_store();
  tune_simulated(world, {llama_problem(1024)}, 1, &store);
  Outcome run;
  SimulatedTarget target(world);
  target.template_digest = "digest-2";
  SimulatedBackend backend(world, run.clock, 5);
  TuneOptions options;
  options.now = [&run] { return run.clock.now_s; };
  const TuneReport report = tune(target, backend, &store, {llama_problem(1024)}, options);
  EXPECT_FALSE(report.shapes[0].already_tuned);
  EXPECT_EQ(report.shapes[0].reused, 0);
}

TEST_F(TuneStoreTest, AnotherTextOfTheRevisionKeepsWinnersUntilRefreshed) {
  const World world({.seed = 12});
  Store store = open_store();
  const auto tune_text = [&](const std::string& digest, bool refresh) {
    Outcome run;
    SimulatedTarget target(world);
    target.template_digest = digest;
    SimulatedBackend backend(world, run.clock, 5);
    TuneOptions options;
    options.now = [&run] { return run.clock.now_s; };
    options.refresh = refresh;
    return tune(target, backend, &store, {llama_problem(1024)}, options).shapes[0];
  };
  const ShapeReport first = tune_text("r1.a", false);
  const ShapeReport after = tune_text("r1.b", false);
  EXPECT_TRUE(after.already_tuned);
  EXPECT_THAT(after.note, ::testing::HasSubstr("another text of the template"));
  EXPECT_EQ(after.winner->config, first.winner->config);
  const ShapeReport refreshed = tune_text("r1.b", true);
  EXPECT_EQ(refreshed.winner->toolchain.template_digest, "r1.b");
  EXPECT_TRUE(tune_text("r1.b", false).note.empty());
  EXPECT_FALSE(tune_text("r2.c", false).already_tuned);
}

// Rules of a space may change without the template's text, and its digest covers only the text.
TEST_F(TuneStoreTest, AStoredConfigThatIsLegalNoMoreIsNotUsedAgain) {
  const World world({.seed = 12});
  const Problem problem = llama_problem(1024);
  Store store = open_store();
  const ShapeReport first = tune_simulated(world, {problem}, 1, &store).report.shapes[0];
  const TuningKey key{spec_of(problem), shape_of(problem), SimulatedTarget(world).identity_,
                      measure_policy()};
  WinnerRecord winner = *first.winner;
  winner.config.set("warps", 3);
  ASSERT_TRUE(SimulatedTemplate(world).space(key.spec, Arch()).broken(winner.config));
  TrialRecord trial = first.trials.front();
  trial.config = winner.config;
  trial.timing.median_us = trial.timing.lo_us = trial.timing.hi_us = trial.timing.min_us = 1;
  store.put_trial(key, trial);
  store.put_winner(key, winner);
  const ShapeReport second = tune_simulated(world, {problem}, 2, &store).report.shapes[0];
  EXPECT_FALSE(second.already_tuned);
  EXPECT_GT(second.reused, 0);
  ASSERT_TRUE(second.winner);
  EXPECT_NE(second.winner->config, winner.config);
  for (const TrialRecord& one : second.trials) EXPECT_NE(one.config, winner.config);
}

TEST_F(TuneStoreTest, RefreshTimesOnlyTheTopThreeAndTheDefault) {
  const World world({.seed = 13});
  Store store = open_store();
  tune_simulated(world, {llama_problem(1024)}, 1, &store);
  const Outcome run = tune_simulated(world, {llama_problem(1024)}, 2, &store, {.refresh = true});
  EXPECT_LE(run.num_prepared.size(), 4U);
  EXPECT_GE(run.num_prepared.size(), 2U);
  ASSERT_TRUE(run.report.shapes[0].winner);
  EXPECT_LT(regret(world, run.report.shapes[0]), 0.03);
}

TEST_F(TuneStoreTest, VerifyReportsFlipsAndRegretAndStoresNothing) {
  const World world({.seed = 13});
  Store store = open_store();
  const Outcome tuned = tune_simulated(world, {llama_problem(1024)}, 1, &store);
  const TuningKey key{spec_of(llama_problem(1024)), shape_of(llama_problem(1024)),
                      SimulatedTarget(world).identity_, measure_policy()};
  const size_t trials = store.trials(key).size();
  SimulatedClock clock;
  SimulatedTarget target(world);
  SimulatedBackend backend(world, clock, 77);
  TuneOptions options;
  options.now = [&clock] { return clock.now_s; };
  const std::vector<WinnerCheck> checks = verify_winners(
      target, backend, &store, {llama_problem(1024), llama_problem(512)}, options, 5);
  ASSERT_EQ(checks.size(), 2U);
  EXPECT_EQ(checks[0].runs, 5);
  EXPECT_EQ(checks[0].flips, 0);
  EXPECT_LT(checks[0].worst_regret, 0.02);
  EXPECT_EQ(checks[0].note, "");
  EXPECT_EQ(checks[1].runs, 0);
  EXPECT_EQ(checks[1].note, "not tuned yet: nothing to verify");
  EXPECT_EQ(store.trials(key).size(), trials);
}

// One kernel has become slower on the device: the stored winner is no longer the best, and verify
// says so.
TEST_F(TuneStoreTest, VerifySeesAWinnerThatIsOneNoMore) {
  const World world({.seed = 13});
  Store store = open_store();
  const Outcome tuned = tune_simulated(world, {llama_problem(1024)}, 1, &store);
  World changed = world;
  changed.make_slower(tuned.report.shapes[0].winner->config, 1.2);
  SimulatedClock clock;
  SimulatedTarget target(changed);
  SimulatedBackend backend(changed, clock, 77);
  TuneOptions options;
  options.now = [&clock] { return clock.now_s; };
  const std::vector<WinnerCheck> checks =
      verify_winners(target, backend, &store, {llama_problem(1024)}, options, 3);
  ASSERT_EQ(checks[0].runs, 3);
  EXPECT_EQ(checks[0].flips, 3);
  EXPECT_GT(checks[0].mean_regret, 0.1);
  EXPECT_EQ(checks[0].others.size(), 3U);
}

// Other candidates were explored in such a quiet moment that their stored times beat the winner's
// time in the final.
TEST_F(TuneStoreTest, VerifyRacesTheStoredWinnerWhateverItsRank) {
  World world({.seed = 13});
  world.make_slower(SimulatedTemplate(world).default_config({}, Arch(), Shape(), DeviceFacts()),
                    1.5);
  Store store = open_store();
  const Outcome tuned = tune_simulated(world, {llama_problem(1024)}, 1, &store);
  ASSERT_FALSE(tuned.report.shapes[0].winner->default_is_winner);
  const Config& winner = tuned.report.shapes[0].winner->config;
  const TuningKey key{spec_of(llama_problem(1024)), shape_of(llama_problem(1024)),
                      SimulatedTarget(world).identity_, measure_policy()};
  for (TrialRecord trial : store.trials(key)) {
    if (trial.status != TrialStatus::kOk || trial.config == winner) continue;
    for (double* us :
         {&trial.timing.median_us, &trial.timing.lo_us, &trial.timing.hi_us, &trial.timing.min_us})
      *us /= 10;
    store.put_trial(key, trial);
  }
  SimulatedClock clock;
  SimulatedTarget target(world);
  SimulatedBackend backend(world, clock, 77);
  TuneOptions options;
  options.now = [&clock] { return clock.now_s; };
  const std::vector<WinnerCheck> checks =
      verify_winners(target, backend, &store, {llama_problem(1024)}, options, 2);
  EXPECT_EQ(checks[0].runs, 2);
  EXPECT_EQ(checks[0].note, "");
  EXPECT_EQ(backend.num_prepared.count(winner.to_text()), 1U);
}

TEST_F(TuneStoreTest, WinnerFollowsFromStoredTrialsAndItsImageIsKept) {
  const World world({.seed = 14});
  Store store = open_store();
  const Outcome run = tune_simulated(world, {llama_problem(1024)}, 1, &store);
  const WinnerRecord& winner = *run.report.shapes[0].winner;
  for (const Config& config : {winner.config, winner.default_config}) {
    const auto image = store.image(
        {winner.spec, winner.arch, winner.toolchain, config, "source of " + config.to_text()});
    ASSERT_TRUE(image);
    EXPECT_EQ(image->bytes, config.to_text());
  }
  ASSERT_EQ(store.load_winners(SimulatedTarget(world).identity_).size(), 1U);
}

TEST_F(TuneStoreTest, NothingWorksIsSaidNotThrown) {
  World world({.seed = 15});
  SimulatedTemplate space(world);
  for (const Config& config : space.space({}, Arch()).enumerate())
    world.set_fate(config, Fate::kWrong);
  Store store = open_store();
  const Outcome run = tune_simulated(world, {llama_problem(1024)}, 1, &store);
  EXPECT_FALSE(run.report.shapes[0].winner);
  const std::string& note = run.report.shapes[0].note;
  EXPECT_TRUE(note.starts_with("no candidate works: ")) << note;
  EXPECT_EQ(note.find("--retry-failed"), std::string::npos) << "they failed just now: " << note;
  const Outcome again = tune_simulated(world, {llama_problem(1024)}, 2, &store);
  EXPECT_EQ(again.num_prepared.size(), 0U);
  EXPECT_TRUE(again.report.shapes[0].note.ends_with("--retry-failed tries them again"))
      << again.report.shapes[0].note;
  EXPECT_TRUE(run.report.shapes[0].complete) << "that is a result, not a budget that ended";
}

}  // namespace
}  // namespace attune::testing
