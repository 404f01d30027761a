// SPDX-License-Identifier: Apache-2.0
// Export, import and merge: every row survives the way out and in, and conflicts are settled by the
// stated rule.
#include "cache/exchange.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <atomic>
#include <barrier>
#include <sstream>
#include <thread>

#include "cache/record_json.hpp"
#include "cache/schema.hpp"
#include "cache/sqlite.hpp"
#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

using testing::HasSubstr;

class ExchangeTest : public StoreTest {
 protected:
  Store store(const std::string& name) const {
    return Store::open(file(name), StoreMode::kReadWrite);
  }

  static void fill(Store& store) {
    for (const int64_t block_m : {64, 128}) store.put_trial(sample_key(), sample_trial(block_m));
    TrialRecord failed = sample_trial(256);
    failed.status = TrialStatus::kCompileFailed;
    failed.reason = "spills 24 bytes\nC7510 \"quoted\"";
    failed.timing = {};
    store.put_trial(sample_key(4096), failed);
    store.put_winner(sample_key(), sample_winner(sample_key()));
    WinnerRecord pin = sample_winner(sample_key(), 128);
    pin.pinned = true;
    store.set_pinned(sample_key(), pin);
    store.put_image(sample_image_key(64), sample_image("winner"));
    store.put_image(sample_image_key(16), sample_image("other"));
  }
  static std::string lines_of(const Store& store) {
    std::ostringstream out;
    export_lines(read_contents(store), out);
    return out.str();
  }
  static ExportFilter of_device(const DeviceIdentity& device) {
    return {device.digest(), "", true};
  }
  static MergePlan merge(Store& into, const StoreContents& from) { return into.merge(from); }
};

TEST_F(ExchangeTest, LinesComeBackAsTheSameRows) {
  Store from = store("from"), into = store("into");
  fill(from);
  const std::string text = lines_of(from);
  std::istringstream in(text);
  const MergePlan plan = merge(into, import_lines(in));
  EXPECT_EQ(plan.count(MergeAction::kAdd), 5) << "three trials, a winner, a pin";
  EXPECT_EQ(lines_of(into), text);
  EXPECT_EQ(into.stats().images, 0) << "lines hold no code";
}

TEST_F(ExchangeTest, LinesDoNotDependOnTheOrderOfWriting) {
  Store one = store("one"), two = store("two");
  for (const int64_t block_m : {16, 32, 64}) one.put_trial(sample_key(), sample_trial(block_m));
  for (const int64_t block_m : {64, 16, 32}) two.put_trial(sample_key(), sample_trial(block_m));
  EXPECT_EQ(lines_of(one), lines_of(two));
}

TEST_F(ExchangeTest, BadLinesAreRefusedWhole) {
  Store from = store("from");
  fill(from);
  const std::string good = lines_of(from);
  const auto refusal = [](const std::string& text) {
    return error_of(ErrorCode::kInvalidArgument, [&] {
      std::istringstream in(text);
      import_lines(in);
    });
  };
  const auto changed = [&](const std::string& what, const std::string& with) {
    std::string text = good;
    const size_t place = text.find(what);
    EXPECT_NE(place, std::string::npos) << what;
    return text.replace(place, what.size(), with);
  };
  EXPECT_THAT(refusal(good + "{\n"), HasSubstr("line 7: not JSON"));
  EXPECT_THAT(refusal(good + "[]\n"), HasSubstr("line 7: is not a JSON object"));
  EXPECT_THAT(refusal(good + "{\"kind\": " + std::string(100000, '[') + "\n"),
              HasSubstr("line 7: JSON nests deeper than 64 levels"));
  EXPECT_THAT(refusal(good.substr(good.find('\n') + 1)), HasSubstr("line 1: the first line"));
  EXPECT_THAT(refusal(changed(fmt::format("\"schema\":{}", kSchemaVersion),
                              fmt::format("\"schema\":{}", kSchemaVersion + 1))),
              HasSubstr(fmt::format("line 1: schema is {}; must be at most", kSchemaVersion + 1)));
  EXPECT_THAT(refusal(changed("\"kind\":\"trial\"", "\"kind\":\"song\"")),
              HasSubstr("kind is \"song\""));
  EXPECT_THAT(refusal(changed("\"arch\":\"sm_90a\"", "\"arch\":90")), HasSubstr("type"));
  EXPECT_THAT(refusal(changed("\"status\":\"ok\"", "\"status\":\"fine\"")),
              HasSubstr("status is \"fine\""));
  EXPECT_THAT(refusal(changed("block_m=", "block_m")), HasSubstr("knob=integer"));
  EXPECT_THAT(refusal(changed("head_dim_qk=128", "head_dim_qk=128x")),
              HasSubstr("head_dim_qk is \"128x\"; must be"));
  EXPECT_THAT(refusal(changed("\"effort\":\"normal\",", "")), HasSubstr("effort"));
}

TEST_F(ExchangeTest, AFileThatWasCutIsRefused) {
  Store from = store("from");
  fill(from);
  const std::string good = lines_of(from);
  const auto import = [](const std::string& text) {
    std::istringstream in(text);
    return import_lines(in);
  };
  const auto refusal = [&](const std::string& text) {
    return error_of(ErrorCode::kInvalidArgument, [&] { import(text); });
  };
  EXPECT_THAT(refusal(""), HasSubstr("it is empty"));
  size_t lines = 0;
  for (size_t at = good.find('\n'); at + 1 < good.size(); at = good.find('\n', at + 1))
    EXPECT_THAT(refusal(good.substr(0, at + 1)),
                HasSubstr("says 5 rows, and " + std::to_string(lines++) + " follow"));
  EXPECT_EQ(lines, 5U);
  std::string unsaid = good;
  unsaid.erase(unsaid.find("\"rows\":5,"), 9);
  EXPECT_EQ(import(unsaid).trials.size(), 3U) << "files of older programs do not say how many";
}

TEST_F(ExchangeTest, SliceHoldsImagesAndOnlyTheRequestedRows) {
  Store from = store("from");
  fill(from);
  TuningKey elsewhere = sample_key();
  elsewhere.device.sm_count = 114;
  from.put_trial(elsewhere, sample_trial());
  export_slice(read_contents(from, of_device(sample_key().device)), file("slice"));
  const Store slice = Store::open(file("slice"), StoreMode::kReadOnly);
  EXPECT_EQ(slice.stats().trials, 3);
  EXPECT_EQ(slice.stats().devices, 1);
  EXPECT_EQ(slice.stats().images, 1) << "the winner's; block_m=16 belongs to nobody";
  EXPECT_EQ(slice.image(sample_image_key(64)).value().bytes, "winner");
  EXPECT_TRUE(slice.verify().empty());
  EXPECT_EQ(read_contents(from, {"", "prefill_sm90", true}).trials.size(), 0U);
  EXPECT_EQ(read_contents(from, {"", "", false}).images.size(), 0U);
  error_of(ErrorCode::kIo, [&] { export_slice({}, file("slice")); });
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(entry.path().string().find("partial"), std::string::npos);
}

TEST_F(ExchangeTest, OneOfManyWritersOfASliceSucceeds) {
  Store from = store("from");
  fill(from);
  const StoreContents contents = read_contents(from);
  constexpr int kThreads = 8;
  std::atomic<int> written = 0, refused = 0;
  std::barrier at_once(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      at_once.arrive_and_wait();
      try {
        export_slice(contents, file("slice"));
        ++written;
      } catch (const Error& error) {
        refused += std::string(error.what()).find("exists; must be") != std::string::npos;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(written, 1);
  EXPECT_EQ(refused, kThreads - 1);
  EXPECT_EQ(Store::open(file("slice"), StoreMode::kReadOnly).stats().trials, 3);
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(entry.path().string().find("partial"), std::string::npos);
}

TEST_F(ExchangeTest, ASliceThatCannotBeWrittenIsAFilesError) {
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { export_slice({}, file(std::string(300, 'x'))); }),
              HasSubstr("cannot write"));
  std::filesystem::create_symlink("nowhere", file("link"));
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { export_slice({}, file("link")); }),
              HasSubstr("exists"));
}

TEST_F(ExchangeTest, RuleHigherEffortThenMoreSamplesThenNewer) {
  struct Case {
    Effort effort;
    int samples;
    std::string created;
    MergeAction action;
    std::string why;
  };
  const std::vector<Case> cases{
      {Effort::kExhaustive, 1, "2020-01-01T00:00:00.000Z", MergeAction::kReplace, "higher effort"},
      {Effort::kQuick, 99, "2030-01-01T00:00:00.000Z", MergeAction::kKeep, "lower effort"},
      {Effort::kNormal, 31, "2020-01-01T00:00:00.000Z", MergeAction::kReplace, "more samples"},
      {Effort::kNormal, 29, "2030-01-01T00:00:00.000Z", MergeAction::kKeep, "fewer samples"},
      {Effort::kNormal, 30, "2030-01-01T00:00:00.000Z", MergeAction::kReplace, "newer"},
      {Effort::kNormal, 30, "2020-01-01T00:00:00.000Z", MergeAction::kKeep, "older"},
  };
  int n = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.why);
    Store into = store("into" + std::to_string(n++));
    WinnerRecord mine = sample_winner(sample_key());
    mine.timing.samples = 30;
    into.put_winner(sample_key(), mine);
    into.put_trial(sample_key(), sample_trial());

    StoreContents from;
    TrialRecord trial = sample_trial();
    trial.timing = {77, 76, 78, 75, c.samples, 0};
    trial.effort = c.effort;
    trial.created = c.created;
    trial.conditions.driver = "600.0";
    from.trials.push_back({sample_key(), trial});
    WinnerRecord winner = sample_winner(sample_key());
    winner.device = sample_key().device;
    winner.policy = sample_key().policy;
    winner.timing = trial.timing;
    winner.effort = c.effort;
    winner.created = c.created;
    from.winners.push_back(winner);

    for (const bool dry_run : {true, false}) {
      const std::string before = lines_of(into);
      const MergePlan plan = dry_run ? into.plan_merge(from) : into.merge(from);
      ASSERT_EQ(plan.steps.size(), 2U);
      for (const MergeStep& step : plan.steps) {
        EXPECT_EQ(step.action, c.action);
        EXPECT_EQ(step.why, c.why);
      }
      EXPECT_EQ(lines_of(into) != before, !dry_run && c.action == MergeAction::kReplace);
    }
    const bool replaced = c.action == MergeAction::kReplace;
    EXPECT_EQ(into.trials(sample_key()).at(0).timing.median_us, replaced ? 77 : 100.5);
    EXPECT_EQ(into.trials(sample_key()).at(0).conditions.driver, replaced ? "600.0" : "580.1")
        << "a row keeps the driver it was measured with";
    EXPECT_EQ(into.all_winners().at(0).timing.median_us, replaced ? 77 : 90);
  }
}

TEST_F(ExchangeTest, ASearchThatWasCutShortIsSaidAndGivesWay) {
  Store cut = store("cut"), whole = store("whole"), copy = store("copy");
  WinnerRecord winner = sample_winner(sample_key());
  whole.put_winner(sample_key(), winner);
  winner.complete = false;
  winner.timing.samples = 1000;
  winner.created = "2030-01-01T00:00:00.000Z";
  cut.put_winner(sample_key(), winner);
  EXPECT_FALSE(cut.all_winners().at(0).complete);
  EXPECT_TRUE(whole.all_winners().at(0).complete);
  EXPECT_EQ(merge(copy, read_contents(cut)).steps.at(0).why, "new");
  EXPECT_FALSE(copy.all_winners().at(0).complete);
  EXPECT_EQ(merge(copy, read_contents(whole)).steps.at(0).action, MergeAction::kReplace);
  EXPECT_TRUE(copy.all_winners().at(0).complete);
  EXPECT_EQ(merge(copy, read_contents(cut)).steps.at(0).action, MergeAction::kKeep);

  const std::string line = lines_of(cut);
  EXPECT_THAT(line, testing::HasSubstr("\"complete\":false"));
  Store old = store("old");  // lines as schema 2 wrote them
  std::string older = line;
  const std::string newer = "\"complete\":false,";
  for (size_t at; (at = older.find(newer)) != std::string::npos;) older.erase(at, newer.size());
  std::istringstream in(older);
  merge(old, import_lines(in));
  EXPECT_TRUE(old.all_winners().at(0).complete);
}

TEST_F(ExchangeTest, MergeKeepsTheNewerPinAndSoundImages) {
  for (const bool mine_is_newer : {true, false}) {
    Store from = store(mine_is_newer ? "from1" : "from2");
    Store into = store(mine_is_newer ? "into1" : "into2");
    fill(from);
    WinnerRecord pin = sample_winner(sample_key(), 32);
    pin.pinned = true;
    pin.created = mine_is_newer ? "2030-01-01T00:00:00.000Z" : "2020-01-01T00:00:00.000Z";
    into.set_pinned(sample_key(), pin);
    into.put_image(sample_image_key(64), sample_image("mine"));
    const MergePlan plan = merge(into, read_contents(from));
    std::vector<std::string> told;
    for (const MergeStep& step : plan.steps)
      told.push_back(step.row + " " + merge_action_name(step.action));
    EXPECT_THAT(told, testing::UnorderedElementsAre(
                          "trial add", "trial add", "trial add", "winner add",
                          mine_is_newer ? "pin keep" : "pin replace", "image keep", "image add"));
    EXPECT_EQ(into.load_winners(sample_key().device).at(0).config.at("block_m"),
              mine_is_newer ? 32 : 128);
    EXPECT_EQ(std::count_if(told.begin(), told.end(), [](const auto& t) { return t[0] == 'p'; }),
              1);
    EXPECT_EQ(into.image(sample_image_key(64)).value().bytes, "mine");
    EXPECT_EQ(into.image(sample_image_key(16)).value().bytes, "other");
  }
}

TEST_F(ExchangeTest, DryRunNeedsNoWriteAccess) {
  Store from = store("from");
  fill(from);
  store("into");
  Store into = Store::open(file("into"), StoreMode::kReadOnly);
  EXPECT_EQ(into.plan_merge(read_contents(from)).count(MergeAction::kAdd), 7);
  EXPECT_EQ(into.stats().trials, 0);
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { into.merge(read_contents(from)); }),
              HasSubstr("reading only"));
}

TEST_F(ExchangeTest, MergingAgainChangesNothing) {
  Store from = store("from"), into = store("into");
  fill(from);
  merge(into, read_contents(from));
  const MergePlan again = merge(into, read_contents(from));
  EXPECT_EQ(again.count(MergeAction::kKeep), static_cast<int64_t>(again.steps.size()));
}

TuningKey key_with_programs() {
  TuningKey key = sample_key();
  key.spec.window_left = -1;
  key.spec.scores.mask_mod =
      read_user_program("// whole words only\nreturn kv_idx % 3 != 1;", score::Kind::kMask, "m")
          .digest;
  key.spec.scores.score_mod =
      read_user_program("// capture slopes: fp32[1]\nreturn score + slopes[head];",
                        score::Kind::kScore, "s")
          .digest;
  return key;
}

TEST_F(ExchangeTest, ProgramsGoWithTheirProblems) {
  Store from = store("from"), lines = store("lines"), rows = store("rows");
  const TuningKey key = key_with_programs();
  from.put_winner(key, sample_winner(key));
  from.put_trial(sample_key(), sample_trial());
  const std::vector<StoredProgram> programs = from.programs();
  ASSERT_EQ(programs.size(), 2U);
  const auto mask = std::find_if(programs.begin(), programs.end(), [](const StoredProgram& one) {
    return one.kind == score::Kind::kMask;
  });
  EXPECT_EQ(mask->text, "// whole words only\nreturn kv_idx % 3 != 1;") << "as it was given";

  const std::string text = lines_of(from);
  std::istringstream in(text);
  EXPECT_EQ(merge(lines, import_lines(in)).count(MergeAction::kAdd), 4);
  EXPECT_EQ(lines.programs(), programs);
  EXPECT_EQ(lines_of(lines), text);

  export_slice(read_contents(from), file("slice"));
  EXPECT_EQ(Store::open(file("slice"), StoreMode::kReadOnly).programs(), programs);
  merge(rows, read_contents(from, {"", "another", true}));
  EXPECT_TRUE(rows.programs().empty()) << "none of its problems was taken";
  EXPECT_EQ(merge(lines, read_contents(from)).count(MergeAction::kAdd), 0);
}

TEST_F(ExchangeTest, ProgramsThatNoProblemNamesAreCollected) {
  Store from = store("from");
  const TuningKey key = key_with_programs();
  from.put_winner(key, sample_winner(key));
  from.collect_garbage();
  EXPECT_EQ(from.programs().size(), 2U);
  from.collect_garbage([](const ToolchainIdentity&) { return false; });
  EXPECT_TRUE(from.programs().empty());
}

TEST_F(ExchangeTest, ATextThatIsNotItsDigestsIsNoProgram) {
  Store from = store("from");
  const TuningKey key = key_with_programs();
  from.put_winner(key, sample_winner(key));
  std::string text = lines_of(from);
  const std::string good = "% 3 != 1;", bad = "% 3 != 2;";
  text.replace(text.find(good), good.size(), bad);
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         std::istringstream in(text);
                         import_lines(in);
                       }),
              HasSubstr("does not match its digest"));
  {
    Database database = Database::open(file("from"), Database::Mode::kReadWrite);
    database.execute("UPDATE program SET text = 'return kv_idx % 3 != 2;' WHERE kind = 1");
  }
  EXPECT_EQ(from.programs().size(), 1U) << "left out";
  from.put_winner(key, sample_winner(key, 64));
  EXPECT_EQ(from.programs().size(), 2U) << "mended by the next put";
}

}  // namespace
}  // namespace attune
