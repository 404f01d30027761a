// SPDX-License-Identifier: Apache-2.0
// Inside of a Store, for store*.cpp and merge.cpp alone: the connection, and how each call becomes
// one transaction.
#pragma once

#include <unistd.h>

#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "cache/schema.hpp"
#include "cache/sqlite.hpp"
#include "cache/store.hpp"
#include "cache/store_file.hpp"

namespace attune {

struct Store::Impl {
  std::filesystem::path path;       // as it was given, for messages
  std::filesystem::path real_path;  // what was checked and is open
  StoreMode mode = StoreMode::kReadOnly;
  std::optional<Database> database;
  FileId file;  // the one that is open
  std::mutex mutex;
  int pid = getpid();

  void open();
  // In a child after fork the mutex may be held by a thread that does not exist there: so the
  // process is looked at first.
  std::unique_lock<std::mutex> locked() {
    if (pid != getpid())
      throw Error(
          ErrorCode::kStore,
          "store " + path.string() + " was opened before fork; open it again in the child process");
    return std::unique_lock<std::mutex>(mutex);
  }
  Database& connected() {
    if (!database) open();
    return *database;
  }
  // Rolls back what a killed writer left half done, which a reading connection cannot, or sets a
  // damaged file aside if this store may write. Afterwards the failed call is worth one more try.
  // Throws the error again when nothing can be done.
  void mend(const SqliteError& error);
  void open_or_mend();

  // Runs work(database) in one transaction, again after mend().
  template <class Work>
  auto read(Work&& work) {
    return guarded(Transaction::Kind::kRead, std::forward<Work>(work));
  }
  template <class Work>
  auto write(Work&& work) {
    if (mode == StoreMode::kReadOnly)
      throw Error(ErrorCode::kStore, "store " + path.string() + " was opened for reading only");
    return guarded(Transaction::Kind::kWrite, std::forward<Work>(work));
  }

 private:
  void open_for_reading();
  void open_for_writing();

  template <class Work>
  auto in_transaction(Transaction::Kind kind, Work& work) {
    Transaction transaction(connected(), kind);
    if constexpr (std::is_void_v<decltype(work(*database))>) {
      work(*database);
      transaction.commit();
    } else {
      auto result = work(*database);
      transaction.commit();
      return result;
    }
  }

  template <class Work>
  auto guarded(Transaction::Kind kind, Work work) {
    const auto lock = locked();
    try {
      return in_transaction(kind, work);
    } catch (const SqliteError& error) {
      mend(error);
    }
    return in_transaction(kind, work);
  }
};

}  // namespace attune
