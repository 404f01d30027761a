// SPDX-License-Identifier: Apache-2.0
// How the tune loop spends its time, on a simulated device: it keeps its budget and uses all of it,
// continues where it stopped, and does not wait long for a worker that hangs.
#include "tests/tuner/simulated_tune.hpp"

namespace attune::testing {
namespace {

TEST(TuneBudget, KeepsItsBudget) {
  for (const double budget : {3.0, 10.0, 60.0}) {
    const World world({.seed = 7, .bad_share = 0.4});
    const Outcome run = tune_simulated(world, llama_problems(), 3, nullptr, {.budget_s = budget});
    EXPECT_LE(run.clock.now_s, budget + 8 * 1.0 + 3)
        << "budget " << budget;  // the final of a started shape, and one hang
    EXPECT_EQ(run.report.shapes.size(), 8U);
    for (const ShapeReport& shape : run.report.shapes) EXPECT_TRUE(shape.winner) << shape.note;
  }
}

// If one shape is finished early, the other shape gets its unused time.
TEST(TuneBudget, UnspentTimeGoesToTheShapesThatWantIt) {
  const World world({.seed = 21, .bad_share = 0});
  const SimulatedTemplate space(world);
  const size_t all = space.space({}, Arch()).enumerate().size();
  for (const double budget : {8.0, 30.0}) {
    const Outcome run = tune_simulated(world, {llama_problem(512), llama_problem(8192)}, 1, nullptr,
                                       {.effort = Effort::kExhaustive, .budget_s = budget});
    size_t trials = 0, complete = 0;
    for (const ShapeReport& shape : run.report.shapes) {
      ASSERT_TRUE(shape.winner);
      EXPECT_EQ(shape.winner->complete, shape.complete);
      EXPECT_EQ(shape.measured, static_cast<int>(shape.trials.size()));
      EXPECT_EQ(shape.complete, shape.note.empty()) << shape.note;
      trials += shape.trials.size();
      complete += shape.complete ? 1 : 0;
    }
    EXPECT_LE(run.clock.now_s, budget + 2);
    if (complete < 2)
      EXPECT_GE(run.clock.now_s, 0.85 * budget) << trials << " trials: there was work left";
    else
      EXPECT_EQ(trials, 2 * all);
  }
}

TEST_F(TuneStoreTest, TheSameTuneGoesOnUntilItIsDone) {
  const World world({.seed = 22});
  const std::vector<Problem> problems{llama_problem(512), llama_problem(8192)};
  Store store = open_store();
  size_t trials = 0;
  bool is_done = false;
  for (int run = 1; !is_done; ++run) {
    ASSERT_LT(run, 30);
    const Outcome tuned =
        tune_simulated(world, problems, static_cast<uint64_t>(run), &store, {.budget_s = 3});
    size_t now = 0;
    is_done = true;
    for (const ShapeReport& shape : tuned.report.shapes) {
      ASSERT_TRUE(shape.winner);
      now += shape.trials.size();
      is_done = is_done && shape.already_tuned;
      if (shape.already_tuned) {
        EXPECT_EQ(shape.measured, 0);
      } else if (!shape.complete) {
        EXPECT_EQ(shape.note, "the budget ended the search");
      }
    }
    EXPECT_GE(now, trials);
    trials = now;
    if (run == 1) {
      EXPECT_FALSE(is_done);
      EXPECT_FALSE(tuned.report.shapes[0].complete && tuned.report.shapes[1].complete)
          << "the budget is too large for this test to mean anything";
    }
  }
  const Outcome whole = tune_simulated(world, problems, 99, nullptr, {.budget_s = 300});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(whole.report.shapes[i].complete);
    EXPECT_GE(trials, whole.report.shapes[i].trials.size());
  }
}

TEST(TuneBudget, AHangingWorkerEndsTheTuneWithTheBudgetAndTheGrace) {
  const World world({.seed = 23, .bad_share = 0});
  for (const int hangs_after : {0, 5, 200}) {
    SimulatedClock clock;
    SimulatedTarget target(world);
    SimulatedBackend backend(world, clock, 1);
    backend.hangs_after = hangs_after;
    TuneOptions options;
    options.budget_s = 6;
    options.now = [&clock] { return clock.now_s; };
    const TuneReport report = tune(target, backend, nullptr, llama_problems(), options);
    EXPECT_LE(clock.now_s, options.budget_s + kGraceSeconds + 0.1);
    ASSERT_EQ(report.shapes.size(), 8U) << "all are accounted for";
    EXPECT_EQ(report.shapes.back().note, "the budget ended before this problem");
    EXPECT_TRUE(std::any_of(report.shapes.begin(), report.shapes.end(),
                            [](const ShapeReport& s) { return s.error == ErrorCode::kDriver; }));
    EXPECT_FALSE(report.interrupted);
    const bool measured = std::any_of(report.shapes.begin(), report.shapes.end(),
                                      [](const ShapeReport& s) { return !s.trials.empty(); });
    EXPECT_EQ(measured, hangs_after == 200);  // the tune is then partial, and the device is here
    for (const ShapeReport& shape : report.shapes)
      EXPECT_EQ(is_lost(shape, report), !measured && shape.error)
          << hangs_after << " " << shape.note;
  }
}

TEST(TuneBudget, AShapeThatLostItsWorkerBeforeTheBudgetEndedIsLost) {
  TuneReport report;
  report.shapes.resize(2);
  report.shapes[0].trials.resize(1);
  report.shapes[1].error = ErrorCode::kDriver;
  EXPECT_TRUE(is_lost(report.shapes[1], report));
  report.shapes[1].wait_ended = true;
  EXPECT_FALSE(is_lost(report.shapes[1], report));
}

TEST(TuneBudget, EachShapeIsReportedWhenItIsFinished) {
  const World world({.seed = 24});
  std::vector<size_t> told;
  TuneOptions options;
  options.finished = [&](const ShapeReport& shape, size_t index, size_t count) {
    EXPECT_EQ(count, 8U);
    EXPECT_TRUE(shape.winner);
    EXPECT_EQ(to_text(shape.problem), to_text(llama_problems()[index]));
    told.push_back(index);
  };
  tune_simulated(world, llama_problems(), 1, nullptr, options);
  std::sort(told.begin(), told.end());
  EXPECT_EQ(told, (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 7})) << "each once";
}

}  // namespace
}  // namespace attune::testing
