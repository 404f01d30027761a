// SPDX-License-Identifier: Apache-2.0
// Opening a store in each state of its file; see store.hpp. Rows are in store_trials,
// store_winners, store_images and store_programs.
#include "cache/store.hpp"

#include <fmt/format.h>

#include "cache/store_impl.hpp"
#include "generator/core/system/log.hpp"

namespace attune {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::kStore, fmt::format("store {}: {}", path.string(), what));
}

[[noreturn]] void refuse_newer(const std::filesystem::path& path, int version) {
  refuse(path, fmt::format("was written by a newer attune (schema {}; this one writes schema {}): "
                           "it can be read, not written. "
                           "Update attune, or use another store",
                           version, kSchemaVersion));
}

// True if the store is sound, by a new connection that has read nothing yet.
bool is_sound(const std::filesystem::path& path) {
  try {
    Database database = Database::open(path, Database::Mode::kReadWrite);
    examine_schema(database);
    Statement check(database, "PRAGMA integrity_check(1)");
    std::string answer;
    if (check.step()) check.read(answer);
    return answer == "ok";
  } catch (const SqliteError& error) {
    if (error.fault() == SqliteFault::kDamaged) return false;
    throw;
  }
}

// True if the file is missing or empty: a process that creates a store first makes an empty file.
bool is_missing(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(path, failed);
  return status.type() == std::filesystem::file_type::not_found ||
         (std::filesystem::is_regular_file(status) &&
          std::filesystem::file_size(path, failed) == 0);
}

}  // namespace

void Store::Impl::open() {
  if (mode == StoreMode::kReadOnly)
    open_for_reading();
  else
    open_for_writing();
}

void Store::Impl::open_for_reading() {
  real_path = private_store(path);
  file = file_id(real_path);
  database.emplace(Database::open(real_path, Database::Mode::kReadOnly));
  const SchemaState state = examine_schema(*database);
  if (state == SchemaState::kEmpty) refuse(path, "is empty");
  if (state == SchemaState::kForeign) refuse(path, "is a database of another program");
  if (state == SchemaState::kOlder) {
    Database copy = Database::copy_in_memory(*database);
    migrate_schema(copy);
    database.emplace(std::move(copy));
  }
}

void Store::Impl::open_for_writing() {
  real_path = create_store_file(path);
  file = file_id(real_path);
  database.emplace(Database::open(real_path, Database::Mode::kReadWrite));
  switch (examine_schema(*database)) {
    case SchemaState::kForeign:
      refuse(path, "is a database of another program and is left alone");
    case SchemaState::kNewer:
      refuse_newer(path, schema_version(*database));
    case SchemaState::kEmpty:
    case SchemaState::kOlder:
      migrate_schema(*database);
      break;
    case SchemaState::kCurrent:
      renew_views(*database);
      break;
  }
}

void Store::Impl::mend(const SqliteError& error) {
  if (error.fault() == SqliteFault::kNeedsRecovery) {
    Database writing = Database::open(real_path, Database::Mode::kReadWrite);
    examine_schema(writing);  // any read rolls back
  } else if (error.fault() == SqliteFault::kMoved) {
    database.reset();  // another process deleted it or set it aside: open the path again
  } else if (error.fault() == SqliteFault::kDamaged && mode == StoreMode::kReadWrite) {
    database.reset();
    if (!(file_id(real_path) == file)) return;  // another process has replaced it already
    if (is_sound(real_path)) return;  // SQLite also reports a failed read as damage: try once more
    if (!looks_like_damaged_store(real_path))
      refuse(path, "is not an attune store; it is left alone");
    set_aside(real_path, file);
  } else {
    throw error;
  }
}

void Store::Impl::open_or_mend() {
  try {
    open();
  } catch (const SqliteError& error) {
    mend(error);
    open();
  }
}

Store Store::open(const std::filesystem::path& path, StoreMode mode) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->mode = mode;
  std::error_code failed;
  const bool is_new = mode == StoreMode::kReadWrite && !std::filesystem::exists(path, failed);
  try {
    impl->open_or_mend();
  } catch (...) {
    impl->database.reset();
    if (is_new) drop_empty_store(impl->real_path, impl->file);
    throw;
  }
  return Store(std::move(impl));
}

// Checks if the file is missing only after opening has failed: after an earlier check, another
// process could still set the file aside.
std::optional<Store> Store::open_existing(const std::filesystem::path& path) {
  try {
    return open(path, StoreMode::kReadOnly);
  } catch (const Error&) {
    if (is_missing(path)) return std::nullopt;
    throw;
  }
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

const std::filesystem::path& Store::path() const { return impl_->path; }

}  // namespace attune
