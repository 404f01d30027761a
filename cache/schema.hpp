// SPDX-License-Identifier: Apache-2.0
// Reads and migrates the schema version of a store. FORMAT.md describes the tables and the steps
// between versions.
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
// Returns the state of a database. kForeign: another program wrote it. kEmpty: it has no table.
// Throws SqliteError (damaged) for a schema version below 1.
SchemaState examine_schema(Database& database);
// Migrates an empty or older store to `version`, one transaction per step. If several processes
// migrate at once, each step is executed only once.
void migrate_schema(Database& database, int version = kSchemaVersion);
// Creates the views of a current store anew if they lack a column that was added later.
void renew_views(Database& database);

extern const char* const kViews;  // SQL

}  // namespace attune
