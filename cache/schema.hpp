// SPDX-License-Identifier: Apache-2.0
// The tables of a store, and the steps from each schema version to the next. FORMAT.md describes
// them.
#pragma once

#include <cstdint>
#include <string_view>

#include "cache/sqlite.hpp"

namespace attune {

inline constexpr int32_t kStoreApplicationId = 0x61747475;  // "attu" at byte 68 of the file
inline constexpr int kSchemaVersion = 7;

enum class SchemaState { kEmpty, kOlder, kCurrent, kNewer, kForeign };

// Returns the beginning of the first table's SQL, as SQLite stores it in each store.
std::string_view first_table_sql();
int schema_version(Database& database);
// Returns the state of a database. kForeign: of another program. kEmpty: without any table. Throws
// SqliteError (damaged) for a version that no attune writes.
SchemaState examine_schema(Database& database);
// Migrates an empty or older store to `version`, one transaction per step. Concurrent callers do
// each step once.
void migrate_schema(Database& database, int version = kSchemaVersion);
// Makes the views of a current store again if they lack a column that was added later.
void renew_views(Database& database);

}  // namespace attune
