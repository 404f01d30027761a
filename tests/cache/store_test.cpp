// SPDX-License-Identifier: Apache-2.0
// Round trips of every record through a store, and the rules by which rows replace each other.
#include "cache/store.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "cache/exchange.hpp"
#include "cache/record_json.hpp"
#include "cache/schema.hpp"
#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

using testing::HasSubstr;

// Lines hold every field, so equal lines are equal records.
std::string line(const TuningKey& key, const TrialRecord& trial) {
  return trial_line({key, trial});
}

TEST_F(StoreTest, TrialComesBackWhole) {
  const TuningKey key = sample_key();
  TrialRecord trial = sample_trial();
  trial.effort = Effort::kExhaustive;
  writer().put_trial(key, trial);
  const std::vector<TrialRecord> trials = reader().trials(key);
  ASSERT_EQ(trials.size(), 1U);
  trial.conditions = key.device.conditions;
  EXPECT_EQ(line(key, trials[0]), line(key, trial));
  EXPECT_EQ(line(key, reader().all_trials().at(0).trial), line(key, trial));
  EXPECT_EQ(reader().all_trials().at(0).key.device.text(), key.device.text());
  EXPECT_EQ(reader().all_trials().at(0).key.device.name, "NVIDIA H200");
}

TEST_F(StoreTest, FailedTrialKeepsItsReasonAndOddNumbers) {
  const TuningKey key = sample_key();
  TrialRecord trial = sample_trial();
  trial.status = TrialStatus::kWrongResult;
  trial.reason = "off by 3 \xff\n'quoted'";
  trial.error_max = std::numeric_limits<double>::infinity();
  trial.error_mean = std::numeric_limits<double>::quiet_NaN();
  trial.created.clear();
  Store store = writer();
  store.put_trial(key, trial);
  const TrialRecord back = store.trials(key).at(0);
  EXPECT_EQ(back.status, TrialStatus::kWrongResult);
  EXPECT_EQ(back.reason, trial.reason);
  EXPECT_TRUE(std::isinf(back.error_max));
  EXPECT_TRUE(std::isnan(back.error_mean));
  EXPECT_THAT(
      back.created,
      testing::MatchesRegex("2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z"));
}

TEST_F(StoreTest, TextsThatSomebodyElseMadeLongAreCut) {
  const TuningKey key = sample_key();
  WinnerRecord winner = sample_winner(key);
  winner.why = std::string(size_t{5} << 20, 'x');
  TrialRecord trial = sample_trial();
  trial.reason = winner.why;
  Store store = writer();
  store.put_winner(key, winner);
  store.put_trial(key, trial);
  store.put_image(sample_image_key(), sample_image(std::string(size_t{1} << 20, '\x7f')));
  EXPECT_EQ(reader().all_winners().at(0).why.size(), size_t{64} << 10);
  EXPECT_EQ(reader().trials(key).at(0).reason.size(), size_t{64} << 10);
  EXPECT_EQ(reader().image(sample_image_key())->bytes.size(), size_t{1} << 20);
}

TEST_F(StoreTest, ALongConfigIsADamagedRowAndAShortWarning) {
  const TuningKey key = sample_key();
  writer().put_trial(key, sample_trial());
  Database database = Database::open(file(), Database::Mode::kReadWrite);
  database.execute("UPDATE trial SET config = hex(zeroblob(1 << 20))");
  EXPECT_TRUE(reader().trials(key).empty());
  EXPECT_THAT(logged(), testing::HasSubstr("a damaged row of trial is left out: "));
  EXPECT_LT(logged().size(), 1000U);
}

TEST_F(StoreTest, TrialsAreOldestFirstAndOfTheirKeyOnly) {
  Store store = writer();
  for (const int64_t block_m : {64, 32, 256}) {
    TrialRecord trial = sample_trial(block_m);
    trial.created = "2026-05-01T12:00:00." + std::to_string(900 - block_m) + "Z";
    store.put_trial(sample_key(), trial);
  }
  store.put_trial(sample_key(4096), sample_trial());
  TuningKey other_device = sample_key();
  other_device.device.sm_count = 114;
  store.put_trial(other_device, sample_trial());
  TuningKey other_policy = sample_key();
  other_policy.policy.text = "v1 warm-l2";
  store.put_trial(other_policy, sample_trial());
  std::vector<int64_t> order;
  for (const TrialRecord& trial : store.trials(sample_key()))
    order.push_back(trial.config.at("block_m"));
  EXPECT_THAT(order, testing::ElementsAre(256, 64, 32));
  EXPECT_EQ(store.all_trials().size(), 6U);
}

TEST_F(StoreTest, LowerEffortDoesNotReplaceUnlessConditionsMoved) {
  Store store = writer();
  TuningKey key = sample_key();
  TrialRecord trial = sample_trial();
  const auto put = [&](Effort effort, double median) {
    trial.effort = effort;
    trial.timing.median_us = median;
    store.put_trial(key, trial);
    return store.trials(key).at(0).timing.median_us;
  };
  EXPECT_EQ(put(Effort::kNormal, 1), 1);
  EXPECT_EQ(put(Effort::kQuick, 2), 1);
  EXPECT_EQ(put(Effort::kNormal, 3), 3);
  EXPECT_EQ(put(Effort::kExhaustive, 4), 4);
  key.device.conditions.driver = "999.9";
  EXPECT_EQ(put(Effort::kQuick, 5), 5);
  EXPECT_EQ(put(Effort::kExhaustive, 6), 6);
  key.device.conditions.power_limit_w = 0;
  EXPECT_EQ(put(Effort::kQuick, 7), 6) << "what is not known is no change";
  key.device.conditions.power_limit_w = 500;
  EXPECT_EQ(put(Effort::kQuick, 8), 8);
  EXPECT_EQ(store.trials(key).at(0).conditions, (Conditions{"999.9", 500}));
  EXPECT_EQ(store.trials(key).size(), 1U);
}

TEST_F(StoreTest, WinnerComesBackWhole) {
  const TuningKey key = sample_key();
  WinnerRecord winner = sample_winner(key);
  writer().put_winner(key, winner);
  winner.device = key.device;
  winner.policy = key.policy;
  winner.conditions = key.device.conditions;
  const std::vector<WinnerRecord> loaded = reader().load_winners(key.device);
  ASSERT_EQ(loaded.size(), 1U);
  EXPECT_EQ(winner_line(loaded[0]), winner_line(winner));
  EXPECT_EQ(loaded[0].conditions, (Conditions{"580.1", 700}));
  EXPECT_EQ(loaded[0].device.conditions, loaded[0].conditions);
  DeviceIdentity renamed = key.device;
  renamed.name = "something else";
  renamed.conditions = {"1.0", 500};
  EXPECT_EQ(reader().load_winners(renamed).size(), 1U)
      << "name, driver and power limit are not part of the identity";
  renamed.sm_count -= 1;
  EXPECT_TRUE(reader().load_winners(renamed).empty());
  EXPECT_EQ(reader().all_winners().size(), 1U);
}

TEST_F(StoreTest, OnlyWinnersOfRequestedProblemsAreRead) {
  const TuningKey plain = sample_key();
  TuningKey wide = plain;
  wide.spec.head_dim_qk = wide.spec.head_dim_v = 64;
  for (const TuningKey& key : {plain, wide}) writer().put_winner(key, sample_winner(key));
  std::vector<std::string> asked;
  const auto found = reader().load_winners(plain.device, [&](const std::string& text) {
    asked.push_back(text);
    return text == to_text(wide.spec);
  });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(to_text(found[0].spec), to_text(wide.spec));
  EXPECT_EQ(asked, (std::vector<std::string>{to_text(plain.spec), to_text(wide.spec)}));
  EXPECT_TRUE(
      reader().load_winners(plain.device, [](const std::string&) { return false; }).empty());
}

TEST_F(StoreTest, RowsAfterEachOtherKeepTheirOwnIdentities) {
  std::vector<TuningKey> keys;
  for (const int head_dim : {64, 128, 64})
    for (const int sm_count : {132, 114}) {
      TuningKey key = sample_key(1024 * static_cast<int64_t>(keys.size() + 1));
      key.spec.head_dim_qk = key.spec.head_dim_v = head_dim;
      key.device.sm_count = sm_count;
      writer().put_winner(key, sample_winner(key));
      keys.push_back(key);
    }
  const auto found = reader().all_winners();
  ASSERT_EQ(found.size(), keys.size());
  for (const TuningKey& key : keys)
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const WinnerRecord& winner) {
      return to_text(winner.spec) == to_text(key.spec) &&
             to_text(winner.shape) == to_text(key.shape) &&
             winner.device.digest() == key.device.digest();
    })) << to_text(key.shape);
}

TEST_F(StoreTest, OtherThreadCountsOfACpuAreRequestedSeparately) {
  TuningKey two = sample_key();
  two.device = {"cpu:znver4", 2, 0, 0, 32 << 20, 0, 0, "+avx2", "AMD EPYC", ""};
  writer().put_winner(two, sample_winner(two));
  DeviceIdentity one = two.device;
  one.sm_count = 1;
  EXPECT_TRUE(reader().load_winners(one).empty());
  const auto found = reader().load_winners_of_other_threads(one);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].device.sm_count, 2);
  EXPECT_TRUE(reader().load_winners_of_other_threads(two.device).empty()) << "those are its own";
  DeviceIdentity other = one;
  other.l2_bytes /= 2;
  EXPECT_TRUE(reader().load_winners_of_other_threads(other).empty()) << "another machine";
  TuningKey gpu = sample_key();
  writer().put_winner(gpu, sample_winner(gpu));
  gpu.device.sm_count -= 1;
  EXPECT_TRUE(reader().load_winners_of_other_threads(gpu.device).empty()) << "no threads on a GPU";
}

TEST_F(StoreTest, WinnersOfTwoTemplatesLiveSideBySideBestFirst) {
  Store store = writer();
  const TuningKey key = sample_key();
  WinnerRecord winner = sample_winner(key);
  store.put_winner(key, winner);
  winner.toolchain = sample_toolchain("t2");
  winner.effort = Effort::kQuick;
  winner.created = "2026-06-01T12:00:00.000Z";
  store.put_winner(key, winner);
  const auto loaded = store.load_winners(key.device);
  ASSERT_EQ(loaded.size(), 2U);
  EXPECT_EQ(loaded[0].toolchain.template_digest, "t1")
      << "normal effort before quick, though older";
}

TEST_F(StoreTest, PinAndTunedWinnerAreBothKept) {
  Store store = writer();
  const TuningKey key = sample_key();
  store.put_winner(key, sample_winner(key, 64));
  for (const int64_t block_m : {32, 256}) {
    WinnerRecord pin = sample_winner(key, block_m);
    pin.pinned = true;
    pin.toolchain = sample_toolchain("t" + std::to_string(block_m));
    store.set_pinned(key, pin);
  }
  store.put_winner(key, sample_winner(key, 16));
  auto loaded = store.load_winners(key.device);
  ASSERT_EQ(loaded.size(), 2U);
  EXPECT_TRUE(loaded[0].pinned);
  EXPECT_EQ(loaded[0].config.at("block_m"), 256);
  EXPECT_EQ(loaded[1].config.at("block_m"), 16);
  store.set_pinned(key, sample_winner(key));
  loaded = store.load_winners(key.device);
  ASSERT_EQ(loaded.size(), 1U);
  EXPECT_FALSE(loaded[0].pinned);
}

TEST_F(StoreTest, ImageComesBackWhole) {
  const KernelImage image = sample_image();
  writer().put_image(sample_image_key(), image);
  const auto back = reader().image(sample_image_key());
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->bytes, image.bytes);
  EXPECT_EQ(back->entry, image.entry);
  EXPECT_EQ(back->format, image.format);
  EXPECT_EQ(back->log, image.log);
  EXPECT_EQ(back->compile_ms, image.compile_ms);
  EXPECT_EQ(info_text(back->info), info_text(image.info));
}

TEST_F(StoreTest, ImageOfAnotherIdentityIsAMiss) {
  Store store = writer();
  store.put_image(sample_image_key(), sample_image());
  const auto missed = [&](auto change) {
    ImageKey key = sample_image_key();
    change(key);
    return !store.image(key).has_value();
  };
  EXPECT_FALSE(missed([](ImageKey&) {}));
  EXPECT_TRUE(missed([](ImageKey& key) { key.arch = "sm_90"; }));
  EXPECT_TRUE(missed([](ImageKey& key) { key.config.set("kv_slots", 3); }));
  EXPECT_TRUE(missed([](ImageKey& key) { key.spec.head_dim_v = 128; }));
  EXPECT_TRUE(missed([](ImageKey& key) { key.toolchain.options = "-O0"; }));
  EXPECT_TRUE(missed([](ImageKey& key) { key.toolchain.compiler = "nvrtc 12.8"; }));
  EXPECT_TRUE(missed([](ImageKey& key) { key.source_digest = "another source"; }));
  EXPECT_FALSE(missed([](ImageKey& key) { key.source_digest.clear(); }))
      << "found by the digest of its template";
  EXPECT_TRUE(missed([](ImageKey& key) {
    key.source_digest.clear();
    key.toolchain.template_digest = "t2";
  }));
  EXPECT_FALSE(missed([](ImageKey& key) { key.toolchain.template_digest = "t2"; }))
      << "another file of the template changed, this kernel did not";
}

TEST_F(StoreTest, EmptyCompilerTakesTheNewestImageOfTheSource) {
  Store store = writer();
  ImageKey key = sample_image_key();
  store.put_image(key, sample_image("older"));
  key.toolchain.compiler = "nvrtc 13.1";
  store.put_image(key, sample_image("newer"));
  key.toolchain.template_digest = "t2";
  key.source_digest = "another source";
  store.put_image(key, sample_image("of another source"));
  ImageKey any = sample_image_key();
  any.toolchain.compiler.clear();
  EXPECT_EQ(store.image(any).value().bytes, "newer");
  any.toolchain.options.clear();
  EXPECT_EQ(store.image(any).value().bytes, "newer");
  store.put_image(sample_image_key(), sample_image("newest"));  // within the same second
  EXPECT_EQ(store.image(any).value().bytes, "newest");
  any.toolchain.options = "-G";
  EXPECT_FALSE(store.image(any).has_value());
  error_of(ErrorCode::kInvalidArgument, [&] { store.put_image(any, sample_image()); });
}

TEST_F(StoreTest, StatsCountRows) {
  Store store = writer();
  const TuningKey key = sample_key();
  store.put_trial(key, sample_trial());
  TrialRecord failed = sample_trial(64);
  failed.status = TrialStatus::kTimedOut;
  store.put_trial(key, failed);
  store.put_winner(key, sample_winner(key));
  store.put_image(sample_image_key(), sample_image("12345"));
  const StoreStats stats = store.stats();
  EXPECT_EQ(stats.trials, 2);
  EXPECT_EQ(stats.failed_trials, 1);
  EXPECT_EQ(stats.winners, 1);
  EXPECT_EQ(stats.images, 1);
  EXPECT_EQ(stats.image_bytes, 5);
  EXPECT_EQ(stats.devices, 1);
  EXPECT_EQ(stats.problems, 1);
  EXPECT_EQ(stats.file_bytes, static_cast<int64_t>(std::filesystem::file_size(file())));
  EXPECT_EQ(stats.schema_version, kSchemaVersion);
  EXPECT_TRUE(store.verify().empty());
}

TEST_F(StoreTest, GarbageIsEveryUnreferencedRow) {
  Store store = writer();
  const TuningKey key = sample_key();
  store.put_trial(key, sample_trial());  // the default, 128
  store.put_winner(key, sample_winner(key, 64));
  for (const int64_t block_m : {64, 128, 32})
    store.put_image(sample_image_key(block_m), sample_image(std::string(50'000, 'x')));
  TrialRecord dead = sample_trial();
  dead.toolchain = sample_toolchain("gone");
  TuningKey dead_key = sample_key();
  dead_key.device.sm_count = 1;
  store.put_trial(dead_key, dead);

  const StoreStats first = store.collect_garbage();
  EXPECT_EQ(first.images, 1);
  EXPECT_EQ(first.trials, 0);
  EXPECT_GE(first.file_bytes, 40'000) << "vacuumed, in whole pages";
  EXPECT_FALSE(store.image(sample_image_key(32)).has_value());
  const StoreStats second =
      store.collect_garbage([](const ToolchainIdentity& of) { return of.template_digest == "t1"; });
  EXPECT_EQ(second.trials, 1);
  EXPECT_EQ(second.devices, 1);
  EXPECT_EQ(second.images, 0);
  EXPECT_TRUE(store.image(sample_image_key(64)).has_value());
  EXPECT_TRUE(store.image(sample_image_key(128)).has_value());
  EXPECT_TRUE(store.verify().empty());
}

TEST_F(StoreTest, ReaderRefusesToWriteAndMissingFileIsNullopt) {
  EXPECT_FALSE(Store::open_existing(file()).has_value());
  error_of(ErrorCode::kStore, [&] { reader(); });
  writer();
  Store store = Store::open_existing(file()).value();
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { store.put_trial(sample_key(), sample_trial()); }),
              HasSubstr("reading only"));
}

// Each merge brings a winner and its image at once, so no look finds one without the other.
TEST_F(StoreTest, ReadsAreConsistentSnapshots) {
  Store writing = writer();
  std::atomic<bool> ended = false;
  std::thread puts([&] {
    for (int64_t n = 1; n <= 300; ++n) {
      const TuningKey key = sample_key(1024 + n);
      StoreContents pair;
      pair.winners.push_back(sample_winner(key, n));
      pair.winners[0].device = key.device, pair.winners[0].policy = key.policy;
      pair.winners[0].created = "2026-02-01T00:00:00.000Z";
      pair.images.push_back({sample_image_key(n), sample_image(), "2026-02-01T00:00:00.000Z"});
      writing.merge(pair);
    }
    ended = true;
  });
  const Store reading = reader();
  while (!ended) {
    const StoreContents seen = read_contents(reading);
    EXPECT_EQ(seen.winners.size(), seen.images.size());
  }
  puts.join();
  EXPECT_EQ(read_contents(reading).images.size(), 300U);
}

}  // namespace
}  // namespace attune
