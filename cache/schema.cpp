// SPDX-License-Identifier: Apache-2.0
// Schema steps. A released step is never edited: a change is a new step, and a change of FORMAT.md.
#include "cache/schema.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

namespace attune {
namespace {

// Version 1: the four identities, trials and winners.
constexpr const char* kStep1 = R"sql(
CREATE TABLE problem (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  text TEXT NOT NULL
) STRICT;
CREATE TABLE shape (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  text TEXT NOT NULL,
  bucket TEXT NOT NULL
) STRICT;
CREATE TABLE device (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  arch TEXT NOT NULL,
  sm_count INTEGER NOT NULL,
  shared_bytes_per_block INTEGER NOT NULL,
  registers_per_sm INTEGER NOT NULL,
  l2_bytes INTEGER NOT NULL,
  memory_bus_bits INTEGER NOT NULL,
  memory_clock_khz INTEGER NOT NULL,
  slice TEXT NOT NULL,
  name TEXT NOT NULL
) STRICT;
CREATE TABLE toolchain (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  template_name TEXT NOT NULL,
  template_digest TEXT NOT NULL,
  compiler TEXT NOT NULL,
  options TEXT NOT NULL
) STRICT;
CREATE TABLE trial (
  id INTEGER PRIMARY KEY,
  problem_id INTEGER NOT NULL REFERENCES problem(id),
  shape_id INTEGER NOT NULL REFERENCES shape(id),
  device_id INTEGER NOT NULL REFERENCES device(id),
  policy TEXT NOT NULL,
  toolchain_id INTEGER NOT NULL REFERENCES toolchain(id),
  arch TEXT NOT NULL,
  config TEXT NOT NULL,
  is_default INTEGER NOT NULL,
  status INTEGER NOT NULL,
  reason TEXT NOT NULL,
  median_us REAL, lo_us REAL, hi_us REAL, min_us REAL,
  samples INTEGER NOT NULL,
  sm_clock_mhz INTEGER NOT NULL,
  error_max REAL, error_mean REAL,
  info TEXT NOT NULL,
  effort INTEGER NOT NULL,
  created TEXT NOT NULL,
  UNIQUE (problem_id, shape_id, device_id, policy, toolchain_id, arch, config)
) STRICT;
CREATE TABLE winner (
  id INTEGER PRIMARY KEY,
  problem_id INTEGER NOT NULL REFERENCES problem(id),
  shape_id INTEGER NOT NULL REFERENCES shape(id),
  device_id INTEGER NOT NULL REFERENCES device(id),
  policy TEXT NOT NULL,
  toolchain_id INTEGER NOT NULL REFERENCES toolchain(id),
  pinned INTEGER NOT NULL,
  arch TEXT NOT NULL,
  config TEXT NOT NULL,
  median_us REAL, lo_us REAL, hi_us REAL, min_us REAL,
  samples INTEGER NOT NULL,
  sm_clock_mhz INTEGER NOT NULL,
  default_config TEXT NOT NULL,
  default_median_us REAL, default_lo_us REAL, default_hi_us REAL, default_min_us REAL,
  default_samples INTEGER NOT NULL,
  default_sm_clock_mhz INTEGER NOT NULL,
  default_is_winner INTEGER NOT NULL,
  effort INTEGER NOT NULL,
  candidates INTEGER NOT NULL,
  why TEXT NOT NULL,
  created TEXT NOT NULL,
  UNIQUE (problem_id, shape_id, device_id, policy, toolchain_id, pinned)
) STRICT;
CREATE INDEX winner_device ON winner (device_id);
)sql";

// Version 2: compiled images; the driver of a timing; shared memory, which the winner rule needs.
constexpr const char* kStep2 = R"sql(
CREATE TABLE image (
  id INTEGER PRIMARY KEY,
  problem_id INTEGER NOT NULL REFERENCES problem(id),
  toolchain_id INTEGER NOT NULL REFERENCES toolchain(id),
  arch TEXT NOT NULL,
  config TEXT NOT NULL,
  format INTEGER NOT NULL,
  entry TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  info TEXT NOT NULL,
  log TEXT NOT NULL,
  compile_ms REAL,
  created TEXT NOT NULL,
  bytes BLOB NOT NULL,
  UNIQUE (problem_id, toolchain_id, arch, config)
) STRICT;
ALTER TABLE trial ADD COLUMN driver TEXT NOT NULL DEFAULT '';
ALTER TABLE trial ADD COLUMN shared_bytes INTEGER NOT NULL DEFAULT -1;
ALTER TABLE winner ADD COLUMN driver TEXT NOT NULL DEFAULT '';
)sql";

// Version 3: a flag for a winner whose search ended. Older tunes count as ended.
constexpr const char* kStep3 = R"sql(
ALTER TABLE winner ADD COLUMN complete INTEGER NOT NULL DEFAULT 1;
)sql";

// Version 4: the digest of an image's source. Earlier rows have none, and are no longer found.
constexpr const char* kStep4 = R"sql(
ALTER TABLE image ADD COLUMN source_digest TEXT NOT NULL DEFAULT '';
)sql";

// Version 5: the texts of callers' programs, which problems name by digest.
constexpr const char* kStep5 = R"sql(
CREATE TABLE program (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  kind INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;
)sql";

// Version 6: views. They have no rows; migrate_schema makes those of the newest version.
constexpr const char* kStep6 = "";

// Version 7: the power limit of a timing.
constexpr const char* kStep7 = R"sql(
ALTER TABLE trial ADD COLUMN power_limit_w INTEGER NOT NULL DEFAULT 0;
ALTER TABLE winner ADD COLUMN power_limit_w INTEGER NOT NULL DEFAULT 0;
)sql";

constexpr std::array<const char*, kSchemaVersion> kSteps{kStep1, kStep2, kStep3, kStep4,
                                                         kStep5, kStep6, kStep7};

}  // namespace

std::string_view first_table_sql() {
  const std::string_view sql(kStep1 + 1);  // without the line end before it
  return sql.substr(0, sql.find(','));
}

int schema_version(Database& database) {
  return static_cast<int>(database.integer("PRAGMA user_version"));
}

SchemaState examine_schema(Database& database) {
  // All reads are in one snapshot. Otherwise another process could make the tables of a new file
  // between two reads, and the mixed result would look like another program's file.
  const Transaction snapshot(database, Transaction::Kind::kRead);
  const int version = schema_version(database);
  const bool ours = database.integer("PRAGMA application_id") == kStoreApplicationId;
  if (!ours) {
    const bool empty = version == 0 && database.integer("SELECT count(*) FROM sqlite_schema") == 0;
    return empty ? SchemaState::kEmpty : SchemaState::kForeign;
  }
  if (version < 1)
    throw SqliteError(SqliteFault::kDamaged,
                      fmt::format("the store's schema version is {}; it begins at 1", version));
  if (version == kSchemaVersion) return SchemaState::kCurrent;
  return version < kSchemaVersion ? SchemaState::kOlder : SchemaState::kNewer;
}

void renew_views(Database& database) {
  constexpr const char* kCount =
      "SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND name IN ('v_winner', 'v_trial') "
      "AND instr(sql, ' AS noisy') > 0";
  constexpr int kViewsWithNoise = 2;
  if (database.integer(kCount) == kViewsWithNoise) return;
  Transaction transaction(database, Transaction::Kind::kWrite);
  database.execute(kViews);
  transaction.commit();
}

void migrate_schema(Database& database, int version) {
  for (int next = schema_version(database) + 1; next <= version; ++next) {
    Transaction transaction(database, Transaction::Kind::kWrite);
    if (schema_version(database) >= next) continue;  // another process was faster
    database.execute(kSteps.at(static_cast<size_t>(next - 1)));
    if (next == kSchemaVersion) database.execute(kViews);
    database.execute(fmt::format("PRAGMA application_id = {}", kStoreApplicationId));
    database.execute(fmt::format("PRAGMA user_version = {}", next));
    transaction.commit();
  }
}

}  // namespace attune
