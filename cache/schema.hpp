// SPDX-License-Identifier: Apache-2.0
// The tables of a store and the steps from each schema version to the next; drawn in FORMAT.md.
#pragma once

#include <cstdint>
#include <string_view>

#include "cache/sqlite.hpp"

namespace attune {

inline constexpr int32_t kStoreApplicationId = 0x61747475;  // "attu" at byte 68 of the file
inline constexpr int kSchemaVersion = 7;

enum class SchemaState { kEmpty, kOlder, kCurrent, kNewer, kForeign };

// How the first table of every store begins, as SQLite keeps its text.
std::string_view first_table_sql();
int schema_version(Database& database);
// kForeign: a database of some other program. kEmpty: a database without any table. Throws
// SqliteError (damaged) for a version that no attune writes.
SchemaState examine_schema(Database& database);
// Brings an empty or older store up to `version`, one transaction a step; concurrent callers do
// each step once.
void migrate_schema(Database& database, int version = kSchemaVersion);
// Makes the views of a current store anew where they lack a column that came later.
void renew_views(Database& database);

}  // namespace attune
