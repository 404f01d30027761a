// SPDX-License-Identifier: Apache-2.0
// The inside of a Store, only for store*.cpp and merge.cpp: the connection, and the transaction of
// each call.
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
  std::filesystem::path path;       // as given, for messages
  std::filesystem::path real_path;  // checked and open
  StoreMode mode = StoreMode::kReadOnly;
  std::optional<Database> database;
  FileId file;  // the open file
  std::mutex mutex;
  int pid = getpid();

  void open();
  // Checks the process before it locks: in a child after fork, a thread that no longer exists may
  // hold the mutex.
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
  // Repairs the store after an error, so that the failed call can be tried once more. Rolls back
  // the unfinished transaction of a killed writer, which a reading connection cannot do. Renames a
  // damaged file if this store may write. Throws the error again if nothing helps.
  void mend(const SqliteError& error);
  void open_or_mend();

  // Runs work(database) in one transaction, and once more after mend().
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
