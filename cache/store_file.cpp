// SPDX-License-Identifier: Apache-2.0
// The file of a store, by POSIX; see store_file.hpp.
#include "cache/store_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "cache/records.hpp"
#include "cache/schema.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/file_lock.hpp"
#include "generator/core/system/files.hpp"
#include "generator/core/system/log.hpp"
#include "generator/core/system/private_path.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw Error(ErrorCode::kStore, fmt::format("store {}: {}", path.string(), what));
}

// A journal is written back into the store, so it must be as private as the store.
constexpr const char* kJournal = "-journal";
constexpr Guarded kGuarded{"store", ErrorCode::kStore, 0700, kJournal};
fs::path journal_of(const fs::path& store) { return store.string() + kJournal; }

// Makes an empty file. A file that exists already is fine. No descriptor is opened: closing one
// would release the locks of the process, and with them those of another thread's connection.
bool make_empty(const fs::path& file) {
  if (::mknod(file.c_str(), S_IFREG | 0600, 0) == 0 || errno == EEXIST) return true;
  if (errno != ENOSYS && errno != EPERM) return false;
  const FileDescriptor made(  // some FUSE file systems lack mknod
      ::open(file.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0600));
  return made || errno == EEXIST;
}

// Refuses names with which SQLite opens no file, or a temporary one.
void require_file_name(const fs::path& path) {
  if (path.empty() || path == ":memory:")
    throw Error(ErrorCode::kStore,
                fmt::format("store is \"{}\"; must be the name of a file", path.string()));
}

}  // namespace

FileId file_id(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

fs::path private_store(const fs::path& path) {
  require_file_name(path);
  return private_file(path, kGuarded);
}

fs::path create_store_file(const fs::path& path) {
  require_file_name(path);
  fs::path file = private_place(path, kGuarded);
  const fs::path directory = file.parent_path();
  if (::access(directory.c_str(), W_OK | X_OK) != 0)
    fail(path, fmt::format("directory {} cannot be written: {}", directory.string(),
                           std::strerror(errno)));
  if (!make_empty(file)) fail(path, fmt::format("cannot be made: {}", std::strerror(errno)));
  if (::access(file.c_str(), W_OK) != 0)
    fail(path, fmt::format("cannot be written: {}", std::strerror(errno)));
  return file;
}

bool looks_like_damaged_store(const fs::path& path) {
  constexpr size_t kHeaderBytes = 100;
  std::string head(65536, '\0');  // at least the header of a SQLite file and its first page
  std::string unused;
  const FileDescriptor file = open_regular(path, O_RDONLY, &unused);
  const ssize_t got = file ? ::read(file.get(), head.data(), head.size()) : 0;
  head.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  const bool cut_off = head.size() < kHeaderBytes;  // has no rows, whatever wrote it
  head.resize(std::max(head.size(), kHeaderBytes));
  const std::string magic("SQLite format 3\0", 16);
  const std::string application_id("attu");
  const bool blank =
      std::all_of(head.begin(), head.begin() + kHeaderBytes, [](char c) { return c == '\0'; });
  return blank || head.compare(68, 4, application_id) == 0 ||
         (head.compare(0, 16, magic) == 0 &&
          (cut_off || head.find(first_table_sql()) != std::string::npos));
}

void drop_empty_store(const fs::path& path, const FileId& id) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || status.st_size != 0) return;
  if (id == FileId{status.st_dev, status.st_ino}) ::unlink(path.c_str());
}

fs::path set_aside(const fs::path& path, const FileId& id) {
  // The lock on the directory keeps two processes from moving the damaged file and then its fresh
  // successor.
  const FileDescriptor directory(
      ::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const LockResult result = directory ? lock_file(directory.get(), {}) : LockResult::kFailed;
  if (result != LockResult::kHeld)
    fail(path,
         fmt::format("its directory cannot be locked: {}",
                     result == LockResult::kFailed ? std::strerror(errno)
                                                   : lock_holder(directory.get()) + " holds it"));
  if (!(file_id(path) == id)) return {};
  std::string stamp = utc_now();
  std::replace(stamp.begin(), stamp.end(), ':', '-');
  fs::path aside = path.string() + ".corrupt-" + stamp;
  for (int n = 1; fs::exists(aside); ++n)
    aside = fmt::format("{}.corrupt-{}-{}", path.string(), stamp, n);
  // The journal is renamed first: otherwise it would be written back into the new file.
  const fs::path journal = journal_of(path);
  if (::rename(journal.c_str(), journal_of(aside).c_str()) != 0 && errno != ENOENT)
    fail(path, fmt::format("its journal cannot be set aside: {}", std::strerror(errno)));
  if (::rename(path.c_str(), aside.c_str()) != 0)
    fail(path, fmt::format("is damaged and cannot be set aside: {}", std::strerror(errno)));
  log(LogCode::kStoreDamaged,
      fmt::format("store {} is damaged; it was renamed to {} and a new one is started",
                  path.string(), aside.string()));
  return aside;
}

}  // namespace attune
