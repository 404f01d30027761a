// SPDX-License-Identifier: Apache-2.0
// The only file that calls SQLite; see sqlite.hpp. Each code of SQLite becomes a SqliteError at the
// call.
#include "cache/sqlite.hpp"

#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "generator/core/system/log.hpp"

namespace attune {
namespace {

SqliteFault fault_of(int extended_code) {
  if (extended_code == SQLITE_READONLY_ROLLBACK || extended_code == SQLITE_READONLY_RECOVERY)
    return SqliteFault::kNeedsRecovery;
  if (extended_code == SQLITE_READONLY_DBMOVED) return SqliteFault::kMoved;
  switch (extended_code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return SqliteFault::kBusy;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return SqliteFault::kDamaged;
    case SQLITE_FULL:
      return SqliteFault::kFull;
    default:
      return SqliteFault::kOther;
  }
}

constexpr int kMostValueBytes = 256 << 20;
// A row of a store takes some hundred steps, and has at least a few dozen bytes.
constexpr int64_t kFreeSteps = 16 << 20, kStepsPerByte = 256;
constexpr int kStepsBetweenLooks = 1 << 16;

// Returns 1 if SQLite must abort the statement.
int count_steps(void* steps_left) {
  int64_t& left = *static_cast<int64_t*>(steps_left);
  left -= kStepsBetweenLooks;
  return left < 0 ? 1 : 0;
}

const char* hint_for(SqliteFault fault, int code) {
  if (fault == SqliteFault::kBusy) return " (busy: another process is writing)";
  if ((code & 0xff) == SQLITE_INTERRUPT)
    return " (given up: it takes far more steps than a store of this size asks for)";
  return "";
}

}  // namespace

void Database::Traits::close(sqlite3* handle) noexcept { sqlite3_close_v2(handle); }

Database Database::open_flags(const std::string& name, int flags) {
  Database database;
  database.name_ = name;
  database.pid_ = getpid();
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &handle, flags | SQLITE_OPEN_FULLMUTEX, nullptr);
  database.handle_.reset(handle);  // must be closed also after a failure
  if (code != SQLITE_OK) database.fail(code, "opening");
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kBusyTimeoutMs);
  database.restrict();
  return database;
}

// Restricts the connection, because the file may be from anyone: its schema must not run code.
// Values and the steps of a statement are limited.
void Database::restrict() {
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(handle(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_limit(handle(), SQLITE_LIMIT_LENGTH, kMostValueBytes);
  std::error_code no_file;
  const auto bytes = std::filesystem::file_size(name_, no_file);
  most_steps_ = kFreeSteps + (no_file ? 0 : kStepsPerByte * static_cast<int64_t>(bytes));
  steps_left_ = std::make_unique<int64_t>(most_steps_);
  sqlite3_progress_handler(handle(), kStepsBetweenLooks, count_steps, steps_left_.get());
}

Database Database::open(const std::filesystem::path& path, Mode mode) {
  Database database = open_flags(
      path.string(), mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
  database.configure(mode);
  return database;
}

void Database::configure(Mode mode) {
  execute("PRAGMA temp_store = MEMORY");   // sorted rows are read into memory anyway
  execute("PRAGMA cell_size_check = ON");  // reports bad cells instead of following them
  if (mode == Mode::kReadOnly) return;
  execute("PRAGMA foreign_keys = ON");
  execute("PRAGMA synchronous = FULL");
  // Never WAL: SQLite before 3.51.3 can lose data when several processes write and checkpoint.
  execute("PRAGMA journal_mode = DELETE");
}

Database Database::copy_in_memory(Database& source) {
  Database copy = open_flags(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY);
  sqlite3_backup* backup = sqlite3_backup_init(copy.handle(), "main", source.handle(), "main");
  if (backup == nullptr) copy.fail(sqlite3_extended_errcode(copy.handle()), "copying");
  sqlite3_backup_step(backup, -1);
  const int code = sqlite3_backup_finish(backup);
  copy.name_ = source.name_;
  copy.most_steps_ = source.most_steps_;
  if (code != SQLITE_OK) copy.fail(code, "copying");
  return copy;
}

Database::~Database() {
  if (!handle_ || pid_ == getpid()) return;
  // Closing would release nothing of this process, but could roll back the parent's transaction.
  sqlite3* inherited = handle_.release();
  try {
    log(LogCode::kStoreOfParent,
        fmt::format("store {}: connection {} of the parent process is left alone", name_,
                    static_cast<const void*>(inherited)));
  } catch (...) {
    // no memory for the message
  }
}

sqlite3* Database::handle() const {
  if (pid_ != getpid())
    throw Error(
        ErrorCode::kStore,
        fmt::format("store {} was opened before fork; open it again in the child process", name_));
  return handle_.get();
}

void Database::fail(int code, std::string_view doing) const {
  const SqliteFault fault = fault_of(code);
  const char* detail = handle_ ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(code);
  throw SqliteError(fault, fmt::format("store {}: {}: {} [SQLite code {}]{}", name_, doing, detail,
                                       code, hint_for(fault, code)));
}

void Database::execute(const std::string& sql) {
  *steps_left_ = most_steps_;
  const int code = sqlite3_exec(handle(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code, sql.substr(0, 80));
}

int64_t Database::integer(const std::string& sql) {
  Statement statement(*this, sql);
  int64_t value = 0;
  if (statement.step()) statement.read(value);
  return value;
}

int64_t Database::last_insert_id() const { return sqlite3_last_insert_rowid(handle()); }
int64_t Database::changes() const { return sqlite3_changes64(handle()); }
bool Database::in_transaction() const { return sqlite3_get_autocommit(handle()) == 0; }

void Statement::Traits::close(sqlite3_stmt* handle) noexcept { sqlite3_finalize(handle); }

Statement::Statement(Database& database, std::string_view sql) : database_(database) {
  sqlite3_stmt* handle = nullptr;
  const int code = sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()),
                                      &handle, nullptr);
  if (code != SQLITE_OK) database.fail(code, "preparing a statement");
  handle_.reset(handle);
  *database.steps_left_ = database.most_steps_;
}

bool Statement::step() {
  column_ = 0;
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  database_.fail(code, "running a statement");
}

void Statement::run() {
  while (step()) {
  }
}

void Statement::bind_one(int index, const std::string& value) {
  const int code = sqlite3_bind_text64(handle_.get(), index, value.data(), value.size(),
                                       SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) database_.fail(code, "binding text");
}

void Statement::bind_one(int index, Blob value) {
  const int code = sqlite3_bind_blob64(handle_.get(), index, value.bytes.data(), value.bytes.size(),
                                       SQLITE_TRANSIENT);
  if (code != SQLITE_OK) database_.fail(code, "binding bytes");
}

void Statement::bind_one(int index, double value) {
  const int code = std::isnan(value) ? sqlite3_bind_null(handle_.get(), index)
                                     : sqlite3_bind_double(handle_.get(), index, value);
  if (code != SQLITE_OK) database_.fail(code, "binding a number");
}

void Statement::bind_one(int index, int64_t value) {
  const int code = sqlite3_bind_int64(handle_.get(), index, value);
  if (code != SQLITE_OK) database_.fail(code, "binding a number");
}

std::string_view Statement::bytes_of(int column) const {
  const void* bytes = sqlite3_column_blob(handle_.get(), column);
  const int size = sqlite3_column_bytes(handle_.get(), column);
  return {static_cast<const char*>(bytes), bytes == nullptr ? 0 : static_cast<size_t>(size)};
}

void Statement::read_one(int column, std::string& value) const {
  value = std::string(bytes_of(column).substr(0, most_text_));
}

void Statement::read_one(int column, double& value) const {
  const bool is_null = sqlite3_column_type(handle_.get(), column) == SQLITE_NULL;
  value = is_null ? std::numeric_limits<double>::quiet_NaN()
                  : sqlite3_column_double(handle_.get(), column);
}

void Statement::read_one(int column, int64_t& value) const {
  value = sqlite3_column_int64(handle_.get(), column);
}

Transaction::Transaction(Database& database, Kind kind) : database_(database) {
  if (database_.in_transaction()) database_.execute("ROLLBACK");  // of an earlier transaction
  database_.execute(kind == Kind::kWrite ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() {
  try {
    try {
      if (database_.in_transaction()) database_.execute("ROLLBACK");
    } catch (const Error& error) {
      log(LogCode::kStoreNotRolledBack, error.what());
    }
  } catch (...) {
    // no memory for the message; the next transaction rolls back
  }
}

void Transaction::commit() { database_.execute("COMMIT"); }

}  // namespace attune
