// SPDX-License-Identifier: Apache-2.0
// POSIX side of a store's file; see store_file.hpp.
#include "cache/store_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "cache/records.hpp"
#include "generator/core/error.hpp"
#include "generator/core/log.hpp"
#include "generator/core/unique_handle.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

struct FdTraits {
  using Handle = int;
  static Handle none() { return -1; }
  static void close(Handle fd) noexcept { ::close(fd); }
};
using Fd = UniqueHandle<FdTraits>;

fs::path directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw Error(ErrorCode::kStore, fmt::format("store {}: {}", path.string(), what));
}

void require_private_entry(const fs::path& entry, const char* noun, const fs::path& store) {
  struct stat status {};
  if (::stat(entry.c_str(), &status) != 0)
    fail(store, fmt::format("{} {}: {}", noun, entry.string(), std::strerror(errno)));
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    fail(store, fmt::format("its {} {} belongs to user {}, neither to you nor to root; stored "
                            "kernels are code, so it is not used",
                            noun, entry.string(), status.st_uid));
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    fail(store, fmt::format("its {} {} has mode {:04o}, so others can write it; stored kernels are "
                            "code, so it is not used (chmod go-w {})",
                            noun, entry.string(), status.st_mode & 07777U, entry.string()));
}

// Like mkdir -p, but each new directory is for this user only.
void create_directories(const fs::path& directory, const fs::path& store) {
  if (directory.empty() || fs::is_directory(directory)) return;
  create_directories(directory.parent_path(), store);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    fail(store,
         fmt::format("directory {} cannot be made: {}", directory.string(), std::strerror(errno)));
}

}  // namespace

FileId file_id(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

void require_private(const fs::path& path) {
  require_private_entry(directory_of(path), "directory", path);
  require_private_entry(path, "file", path);
}

void create_store_file(const fs::path& path) {
  const fs::path directory = directory_of(path);
  create_directories(directory, path);
  require_private_entry(directory, "directory", path);
  if (::access(directory.c_str(), W_OK | X_OK) != 0)
    fail(path, fmt::format("directory {} cannot be written: {}", directory.string(),
                           std::strerror(errno)));
  const Fd created(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  if (!created && errno != EEXIST)
    fail(path, fmt::format("cannot be made: {}", std::strerror(errno)));
  if (::access(path.c_str(), W_OK) != 0)
    fail(path, fmt::format("cannot be written: {}", std::strerror(errno)));
}

bool looks_like_damaged_store(const fs::path& path) {
  std::string head(100, '\0');  // the header of a SQLite file
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  const std::string magic("SQLite format 3\0", 16);
  const std::string application_id("attu");
  const bool blank = std::all_of(head.begin(), head.end(), [](char c) { return c == '\0'; });
  return blank || head.compare(68, 4, application_id) == 0 ||
         (head.compare(0, 16, magic) == 0 && head.compare(68, 4, "\0\0\0\0", 4) == 0);
}

fs::path set_aside(const fs::path& path, const FileId& id) {
  // The lock on the directory keeps two processes from moving the damaged file and then its fresh
  // successor.
  const Fd directory(::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::flock(directory.get(), LOCK_EX) != 0)
    fail(path, fmt::format("its directory cannot be locked: {}", std::strerror(errno)));
  if (!(file_id(path) == id)) return {};
  std::string stamp = utc_now();
  std::replace(stamp.begin(), stamp.end(), ':', '-');
  fs::path aside = path.string() + ".corrupt-" + stamp;
  for (int n = 1; fs::exists(aside); ++n)
    aside = fmt::format("{}.corrupt-{}-{}", path.string(), stamp, n);
  // The journal goes first: left behind, it would be played back into the new file.
  const std::string journal = path.string() + "-journal";
  if (::rename(journal.c_str(), (aside.string() + "-journal").c_str()) != 0 && errno != ENOENT)
    fail(path, fmt::format("its journal cannot be set aside: {}", std::strerror(errno)));
  if (::rename(path.c_str(), aside.c_str()) != 0)
    fail(path, fmt::format("is damaged and cannot be set aside: {}", std::strerror(errno)));
  log(LogLevel::kWarning,
      fmt::format("store {} is damaged; it was renamed to {} and a new one is started",
                  path.string(), aside.string()));
  return aside;
}

}  // namespace attune
