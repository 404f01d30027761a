// SPDX-License-Identifier: Apache-2.0
// RAII classes for a SQLite connection, statement and transaction. Only sqlite.cpp includes
// sqlite3.h. A connection belongs to the process that opened it: in a child after fork each use
// throws, and closing it does not touch the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "generator/core/system/error.hpp"
#include "generator/core/system/unique_handle.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace attune {

// The kinds of failures that a caller can treat differently.
enum class SqliteFault { kOther, kBusy, kDamaged, kNeedsRecovery, kMoved, kFull };

class SqliteError : public Error {
 public:
  SqliteError(SqliteFault fault, const std::string& message)
      : Error(ErrorCode::kStore, message), fault_(fault) {}
  SqliteFault fault() const { return fault_; }

 private:
  SqliteFault fault_;
};

// Bytes that are bound as a BLOB; plain strings are bound as TEXT.
struct Blob {
  std::string_view bytes;
};

class Database {
 public:
  enum class Mode { kReadOnly, kReadWrite };
  static constexpr int kBusyTimeoutMs = 10'000;

  // Opens an existing file. kReadWrite: rollback journal, synchronous=FULL, foreign keys on.
  // Views, triggers and functions in the file's schema do not run. Values of more than 256 MB are
  // refused. Statements that take far more steps than the file's size explains are aborted.
  [[nodiscard]] static Database open(const std::filesystem::path& path, Mode mode);
  // Returns a writable copy of `source` in memory, which belongs to no file.
  [[nodiscard]] static Database copy_in_memory(Database& source);
  Database(Database&&) noexcept = default;
  Database& operator=(Database&&) noexcept = default;
  ~Database();

  void execute(const std::string& sql);
  int64_t integer(const std::string& sql);  // first column of the first row; 0 without rows
  int64_t last_insert_id() const;
  int64_t changes() const;  // rows of the last statement
  bool in_transaction() const;

 private:
  friend class Statement;
  struct Traits {
    using Handle = sqlite3*;
    static Handle none() { return nullptr; }
    static void close(Handle handle) noexcept;
  };
  Database() = default;
  static Database open_flags(const std::string& name, int flags);
  void restrict();
  void configure(Mode mode);
  sqlite3* handle() const;  // throws in a process that did not open it
  [[noreturn]] void fail(int code, std::string_view doing) const;

  int64_t most_steps_ = 0;               // per statement
  std::unique_ptr<int64_t> steps_left_;  // of the running statement; SQLite has its address
  UniqueHandle<Traits> handle_;
  std::string name_;
  int pid_ = 0;
};

// The most bytes of a stored text that are read, unless a statement calls most_text(). All texts
// that attune writes are far shorter, except compilers' logs.
inline constexpr size_t kMostTextBytes = size_t{64} << 10;

// One prepared statement. bind(...) sets all parameters in order; read(...) reads the next columns
// of the row.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);

  template <class... Values>
  Statement& bind(const Values&... values) {
    int index = 0;
    (bind_one(++index, values), ...);
    return *this;
  }
  // Sets the most bytes of a text that read() returns. read() truncates longer texts, which attune
  // did not write.
  Statement& most_text(size_t bytes) {
    most_text_ = bytes;
    return *this;
  }
  bool step();  // true: a row can be read
  void run();   // all steps
  template <class... Values>
  void read(Values&... values) {
    (read_one(column_++, values), ...);
  }
  // Reads the whole next column, whatever its length.
  void read_bytes(std::string& value) { value = std::string(bytes_of(column_++)); }

 private:
  struct Traits {
    using Handle = sqlite3_stmt*;
    static Handle none() { return nullptr; }
    static void close(Handle handle) noexcept;
  };
  void bind_one(int index, const std::string& value);
  void bind_one(int index, Blob value);
  void bind_one(int index, double value);  // NaN becomes NULL
  void bind_one(int index, int64_t value);
  template <class Integer>
  requires(std::is_integral_v<Integer> || std::is_enum_v<Integer>) void bind_one(int index,
                                                                                 Integer value) {
    bind_one(index, static_cast<int64_t>(value));
  }
  std::string_view bytes_of(int column) const;          // until the next step
  void read_one(int column, std::string& value) const;  // at most most_text() bytes
  void read_one(int column, double& value) const;       // NULL becomes NaN
  void read_one(int column, int64_t& value) const;
  template <class Integer>
  requires(std::is_integral_v<Integer> ||
           std::is_enum_v<Integer>) void read_one(int column, Integer& value) const {
    int64_t wide = 0;
    read_one(column, wide);
    value = static_cast<Integer>(wide);
  }

  Database& database_;
  UniqueHandle<Traits> handle_;
  int column_ = 0;  // next column to read
  size_t most_text_ = kMostTextBytes;
};

// A transaction, rolled back unless committed. kWrite takes the write lock at its start, so another
// writer can only make the start fail.
class Transaction {
 public:
  enum class Kind { kRead, kWrite };
  Transaction(Database& database, Kind kind);
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();
  void commit();

 private:
  Database& database_;
};

}  // namespace attune
