// SPDX-License-Identifier: Apache-2.0
// Files of an older and a newer schema: migrated, read in memory, or refused for writing.
#include "cache/schema.hpp"

#include <gmock/gmock.h>

#include <thread>

#include "cache/store_rows.hpp"
#include "generator/core/system/digest.hpp"
#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

using testing::HasSubstr;

class SchemaTest : public StoreTest {
 protected:
  Database raw() const { return Database::open(file(), Database::Mode::kReadWrite); }

  // A store as version 1 wrote it, with one trial and one winner.
  void make_version_1() {
    write_bytes(file(), "");
    Database database = raw();
    migrate_schema(database, 1);
    ASSERT_EQ(schema_version(database), 1);
    const TuningKey key = sample_key();
    const ToolchainIdentity tools = sample_toolchain();
    Statement(database, "INSERT INTO problem (digest, text) VALUES (?, ?)")
        .bind(xxh3_128_hex(to_text(key.spec)), to_text(key.spec))
        .run();
    Statement(database, "INSERT INTO shape (digest, text, bucket) VALUES (?, ?, ?)")
        .bind(xxh3_128_hex(to_text(key.shape)), to_text(key.shape), bucket_of(key.shape))
        .run();
    Statement(database, "INSERT INTO device VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(key.device.digest(), key.device.arch, key.device.sm_count,
              key.device.shared_bytes_per_block, key.device.registers_per_sm, key.device.l2_bytes,
              key.device.memory_bus_bits, key.device.memory_clock_khz, key.device.slice,
              key.device.name)
        .run();
    Statement(database, "INSERT INTO toolchain VALUES (1, ?, ?, ?, ?, ?)")
        .bind(tools.digest(), tools.template_name, tools.template_digest, tools.compiler,
              tools.options)
        .run();
    const std::string info =
        R"({"registers":96,"spill_load_bytes":0,"spill_store_bytes":0,"stack_bytes":0,)"
        R"("static_shared_bytes":0,"warnings":[]})";
    Statement(database,
              "INSERT INTO trial VALUES (1, 1, 1, 1, ?, 1, 'sm_90a', 'block_m=64', 0, 0, '', "
              "100.0, 99.0, 101.0, 98.0, 30, 0,"
              " 0.5, 0.25, ?, 2, '2026-01-01T00:00:00.000Z')")
        .bind(key.policy.text, info)
        .run();
    database.execute("INSERT INTO winner VALUES (1, 1, 1, 1, '" + key.policy.text +
                     "', 1, 0, 'sm_90a', 'block_m=64', 100.0, 99.0, 101.0,"
                     " 98.0, 30, 0, 'block_m=128', 110.0, 109.0, 111.0, 108.0, 30, 0, 0, 2, 5, "
                     "'fastest', '2026-01-01T00:00:00.000Z')");
  }

  static void expect_old_rows(const Store& store) {
    const std::vector<TrialRecord> trials = store.trials(sample_key());
    ASSERT_EQ(trials.size(), 1U);
    EXPECT_EQ(trials[0].info.registers, 96);
    EXPECT_EQ(trials[0].conditions, Conditions{}) << "not known";
    EXPECT_EQ(trials[0].shared_bytes, -1);
    const auto winners = store.load_winners(sample_key().device);
    ASSERT_EQ(winners.size(), 1U);
    EXPECT_EQ(winners[0].config.to_text(), "block_m=64");
    EXPECT_EQ(winners[0].candidates, 5);
    EXPECT_TRUE(winners[0].complete) << "an old tune is not asked to go on";
  }
};

TEST_F(SchemaTest, OlderStoreIsMigratedByAWriter) {
  make_version_1();
  {
    Store store = writer();
    expect_old_rows(store);
    EXPECT_EQ(store.stats().schema_version, kSchemaVersion);
    store.put_image(sample_image_key(), sample_image());
    EXPECT_TRUE(store.verify().empty());
  }
  Database database = raw();
  EXPECT_EQ(schema_version(database), kSchemaVersion);
}

TEST_F(SchemaTest, OlderStoreIsReadAsItIs) {
  make_version_1();
  const std::string before = read_bytes(file());
  expect_old_rows(reader());
  EXPECT_FALSE(reader().image(sample_image_key()).has_value());
  EXPECT_TRUE(reader().verify().empty());
  EXPECT_EQ(read_bytes(file()), before) << "a reader does not touch the file";
}

// Images of version 3 do not name their source. They are sound, but no look-up finds them.
TEST_F(SchemaTest, ImagesWithoutASourceDigestAreMisses) {
  write_bytes(file(), "");
  {
    Database database = raw();
    migrate_schema(database, 4);
    ImageKey key = sample_image_key();
    key.source_digest.clear();
    replace_image(database, {key, sample_image(), "2026-01-01T00:00:00.000Z"});
    database.execute("ALTER TABLE image DROP COLUMN source_digest");
    database.execute("PRAGMA user_version = 3");
  }
  EXPECT_FALSE(reader().image(sample_image_key()).has_value());
  EXPECT_TRUE(reader().verify().empty());
  Store store = writer();
  EXPECT_TRUE(store.verify().empty());
  EXPECT_EQ(store.stats().images, 1);
  store.put_image(sample_image_key(), sample_image());
  EXPECT_EQ(store.stats().images, 1) << "it takes the old one's place";
  EXPECT_TRUE(store.image(sample_image_key()).has_value());
}

TEST_F(SchemaTest, NewerStoreIsReadButNotWritten) {
  writer().put_trial(sample_key(), sample_trial());
  Database database = raw();
  database.execute("ALTER TABLE trial ADD COLUMN energy_j REAL");
  database.execute("CREATE TABLE wanted (id INTEGER PRIMARY KEY) STRICT");
  database.execute("PRAGMA user_version = " + std::to_string(kSchemaVersion + 1));
  const std::string before = read_bytes(file());
  EXPECT_EQ(reader().trials(sample_key()).size(), 1U);
  const std::string message = error_of(ErrorCode::kStore, [&] { writer(); });
  EXPECT_THAT(message, HasSubstr(file().string()));
  EXPECT_THAT(message, HasSubstr("newer attune (schema 8; this one writes schema 7)"));
  EXPECT_EQ(read_bytes(file()), before);
}

TEST_F(SchemaTest, NewerStoreThatCannotBeReadIsAnError) {
  writer().put_trial(sample_key(), sample_trial());
  Database database = raw();
  database.execute("ALTER TABLE trial RENAME TO measurement");
  database.execute("PRAGMA user_version = 9");
  error_of(ErrorCode::kStore, [&] { reader().trials(sample_key()); });
}

// Makes a store of this schema with old views, which lack a new column.
TEST_F(SchemaTest, OlderViewsGetTheirNewColumnsFromAWriter) {
  const auto columns = [&] {
    return raw().integer(
        "SELECT count(*) FROM sqlite_schema WHERE name = 'v_winner' AND instr(sql, ' AS noisy') > "
        "0");
  };
  { const Store store = Store::open(file(), StoreMode::kReadWrite); }
  EXPECT_EQ(columns(), 1);
  raw().execute("DROP VIEW v_winner; CREATE VIEW v_winner AS SELECT id AS winner_id FROM winner");
  EXPECT_EQ(columns(), 0);
  { const Store store = Store::open(file(), StoreMode::kReadWrite); }
  EXPECT_EQ(columns(), 1);
}

TEST_F(SchemaTest, FailedStepLeavesTheOldSchema) {
  make_version_1();
  {
    Database database = raw();
    database.execute("CREATE TABLE image (in_the_way INTEGER) STRICT");
  }
  error_of(ErrorCode::kStore, [&] { writer(); });
  Database database = raw();
  EXPECT_EQ(schema_version(database), 1);
  EXPECT_EQ(
      database.integer("SELECT count(*) FROM pragma_table_info('trial') WHERE name = 'driver'"), 0);
}

TEST_F(SchemaTest, ManyOpenersMigrateOnce) {
  make_version_1();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { expect_old_rows(writer()); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(writer().verify().empty());
}

// An opener that sees tables half made must not take the file for another program's.
TEST_F(SchemaTest, ManyOpenersOfAFreshFileAllGetIt) {
  for (int round = 0; round < 40; ++round) {
    const std::filesystem::path fresh = file("fresh-" + std::to_string(round) + ".db");
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        try {
          Store::open(fresh, StoreMode::kReadWrite);
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(SchemaTest, FileHasRollbackJournalAndOurMark) {
  writer();
  Database database = raw();
  EXPECT_EQ(database.integer("PRAGMA application_id"), kStoreApplicationId);
  Statement mode(database, "PRAGMA journal_mode");
  ASSERT_TRUE(mode.step());
  std::string text;
  mode.read(text);
  EXPECT_EQ(text, "delete");
  EXPECT_EQ(database.integer("PRAGMA synchronous"), 2) << "FULL";
  EXPECT_EQ(read_bytes(file()).substr(68, 4), "attu");
  EXPECT_EQ(database.integer("SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND "
                             "type = 'table' AND name NOT LIKE 'sqlite%' AND strict = 0"),
            0);
}

}  // namespace
}  // namespace attune
