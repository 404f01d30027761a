// SPDX-License-Identifier: Apache-2.0
// Counting, checking and clearing a store: stats, verify, collect_garbage.
#include <fmt/format.h>

#include <filesystem>

#include "cache/store_impl.hpp"
#include "cache/store_rows.hpp"

namespace attune {
namespace {

StoreStats count_rows(Database& database) {
  StoreStats s;
  s.trials = database.integer("SELECT count(*) FROM trial");
  s.failed_trials = database.integer("SELECT count(*) FROM trial WHERE status <> 0");
  s.winners = database.integer("SELECT count(*) FROM winner");
  s.images = database.integer("SELECT count(*) FROM image");
  s.image_bytes = database.integer("SELECT coalesce(sum(length(bytes)), 0) FROM image");
  s.devices = database.integer("SELECT count(*) FROM device");
  s.problems =
      database.integer("SELECT count(*) FROM (SELECT DISTINCT problem_id, shape_id FROM trial)");
  s.file_bytes = database.integer("PRAGMA page_count") * database.integer("PRAGMA page_size");
  s.schema_version = schema_version(database);
  return s;
}

void append_check(Database& database, const char* pragma, std::vector<std::string>& problems) {
  Statement check(database, pragma);
  while (check.step()) {
    std::string text;
    check.read(text);
    if (text != "ok") problems.push_back(fmt::format("{}: {}", pragma, text));
  }
}

void delete_dead_toolchains(Database& database,
                            const std::function<bool(const ToolchainIdentity&)>& is_live) {
  std::vector<int64_t> dead;
  Statement select(database,
                   "SELECT id, template_name, template_digest, compiler, options FROM toolchain");
  while (select.step()) {
    int64_t id = 0;
    ToolchainIdentity of;
    select.read(id, of.template_name, of.template_digest, of.compiler, of.options);
    if (!is_live(of)) dead.push_back(id);
  }
  for (const int64_t id : dead)
    for (const char* from : {"trial WHERE", "winner WHERE pinned = 0 AND"})
      Statement(database, fmt::format("DELETE FROM {} toolchain_id = ?", from)).bind(id).run();
}

void delete_unused(Database& database) {
  database.execute(
      "DELETE FROM image WHERE NOT EXISTS (SELECT 1 FROM winner w WHERE w.problem_id = "
      "image.problem_id"
      " AND w.toolchain_id = image.toolchain_id AND w.arch = image.arch AND image.config IN "
      "(w.config, w.default_config))"
      " AND NOT EXISTS (SELECT 1 FROM trial t WHERE t.is_default <> 0 AND t.problem_id = "
      "image.problem_id"
      " AND t.toolchain_id = image.toolchain_id AND t.arch = image.arch AND t.config = "
      "image.config)");
  for (const char* table : {"shape", "device"})
    database.execute(
        fmt::format("DELETE FROM {0} WHERE id NOT IN (SELECT {0}_id FROM trial UNION SELECT {0}_id "
                    "FROM winner)",
                    table));
  for (const char* table : {"problem", "toolchain"})
    database.execute(fmt::format(
        "DELETE FROM {0} WHERE id NOT IN (SELECT {0}_id FROM trial UNION SELECT {0}_id FROM winner"
        " UNION SELECT {0}_id FROM image)",
        table));
  database.execute(
      "DELETE FROM program WHERE NOT EXISTS (SELECT 1 FROM problem WHERE instr(problem.text, "
      "program.digest) > 0)");
}

// Deletes the oldest images until the store's file fits into `max_bytes`. Images of pins stay.
void delete_oldest_images(Database& database, int64_t max_bytes) {
  const int64_t pages =
      database.integer("PRAGMA page_count") - database.integer("PRAGMA freelist_count");
  const int64_t images = database.integer("SELECT coalesce(sum(length(bytes)), 0) FROM image");
  int64_t bytes = pages * database.integer("PRAGMA page_size") - images;
  std::vector<int64_t> dropped;
  Statement select(database,
                   "SELECT id, length(bytes), EXISTS (SELECT 1 FROM winner w WHERE w.pinned <> 0"
                   " AND w.problem_id = image.problem_id AND w.toolchain_id = image.toolchain_id"
                   " AND w.arch = image.arch AND w.config = image.config) AS pin"
                   " FROM image ORDER BY pin DESC, created DESC, id DESC");
  while (select.step()) {
    int64_t id = 0, size = 0, pin = 0;
    select.read(id, size, pin);
    if (pin == 0 && bytes + size > max_bytes)
      dropped.push_back(id);
    else
      bytes += size;
  }
  for (const int64_t id : dropped)
    Statement(database, "DELETE FROM image WHERE id = ?").bind(id).run();
}

// Deletes the rows of a key that were measured with the toolchain at one time.
void delete_rows(Database& database, const char* table, const char* more, const TuningKey& key,
                 const ToolchainIdentity& toolchain, const std::string& created) {
  const auto ids = find_key(database, key);
  const auto toolchain_id = find_toolchain(database, toolchain);
  if (!ids || !toolchain_id) return;
  Statement remove(
      database, fmt::format("DELETE FROM {} WHERE problem_id = ? AND shape_id = ? AND "
                            "device_id = ? AND policy = ? AND toolchain_id = ? AND created = ?{}",
                            table, more));
  remove.bind(ids->problem, ids->shape, ids->device, key.policy.text, *toolchain_id, created).run();
}

StoreStats difference(const StoreStats& before, const StoreStats& after) {
  StoreStats d;
  d.trials = before.trials - after.trials;
  d.failed_trials = before.failed_trials - after.failed_trials;
  d.winners = before.winners - after.winners;
  d.images = before.images - after.images;
  d.image_bytes = before.image_bytes - after.image_bytes;
  d.devices = before.devices - after.devices;
  d.problems = before.problems - after.problems;
  d.file_bytes = before.file_bytes - after.file_bytes;
  d.schema_version = after.schema_version;
  return d;
}

}  // namespace

StoreStats Store::stats() const { return impl_->read(count_rows); }

std::vector<std::string> Store::verify() const {
  // Not through read(): a check reports damage, it does not replace the file.
  const auto lock = impl_->locked();
  std::vector<std::string> problems;
  try {
    Database& database = impl_->connected();
    append_check(database, "PRAGMA integrity_check", problems);
    append_check(database, "PRAGMA foreign_key_check", problems);
    for (std::string& fault : image_faults(database)) problems.push_back(std::move(fault));
  } catch (const SqliteError& error) {
    if (error.fault() != SqliteFault::kDamaged) throw;
    problems.emplace_back(error.what());
  }
  return problems;
}

// Deletes rows by `work`, then rows that nothing names any more.
StoreStats Store::shrink(const std::function<void(Database&)>& work) {
  if (const std::vector<std::string> faults = verify(); !faults.empty())
    throw Error(ErrorCode::kIo,
                fmt::format("{}: the store is damaged, and nothing of it was deleted: {}",
                            impl_->path.string(), faults.front()));
  const StoreStats before = stats();
  impl_->write([&](Database& database) {
    work(database);
    delete_unused(database);
  });
  {
    const auto lock = impl_->locked();
    impl_->connected().execute("VACUUM");  // cannot run inside a transaction
  }
  return difference(before, stats());
}

StoreStats Store::collect_garbage(const std::function<bool(const ToolchainIdentity&)>& is_live,
                                  int64_t max_bytes) {
  return shrink([&](Database& database) {
    if (is_live) delete_dead_toolchains(database, is_live);
    if (max_bytes == 0) return;
    delete_unused(database);  // first those that nobody misses
    delete_oldest_images(database, max_bytes);
  });
}

StoreStats Store::remove(const RowFilter& takes) {
  return shrink([&](Database& database) {
    for (const StoredTrial& row : read_all_trials(database))
      if (takes(row.key, row.trial.toolchain, row.trial.created))
        delete_rows(database, "trial", "", row.key, row.trial.toolchain, row.trial.created);
    for (const WinnerRecord& row : read_all_winners(database)) {
      const TuningKey key{row.spec, row.shape, row.device, row.policy};
      if (!row.pinned && takes(key, row.toolchain, row.created))
        delete_rows(database, "winner", " AND pinned = 0", key, row.toolchain, row.created);
    }
  });
}

}  // namespace attune
