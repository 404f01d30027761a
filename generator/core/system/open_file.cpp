// SPDX-License-Identifier: Apache-2.0
// Opens files by kind; see open_file.hpp. The kind is checked before opening, because opening some
// devices has effects. It is checked again afterwards, because the file may have been replaced in
// between.
#include "generator/core/system/open_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace attune {
namespace {

namespace fs = std::filesystem;
using Status = struct stat;

constexpr int kMostLinks = 40;  // Linux has the same limit

std::string not_regular(mode_t mode) {
  return fmt::format("it is {}, not a regular file", kind_of_file(mode));
}

bool is_character_stream(mode_t mode) { return S_ISCHR(mode) || S_ISFIFO(mode) || S_ISSOCK(mode); }

bool is_own_or_roots(const Status& status) {
  return status.st_uid == ::geteuid() || status.st_uid == 0;
}

// Returns a message about a link or FIFO on the way to `path` that belongs to another user; "" if
// there is none. Stops at links in /proc: their text is not a path, and they name files that this
// process already has open.
std::string laid_by_another(fs::path path) {
  for (int links = 0; links < kMostLinks; ++links) {
    Status status{};
    if (::lstat(path.c_str(), &status) != 0) return "";
    const bool is_link = S_ISLNK(status.st_mode);
    if ((is_link || S_ISFIFO(status.st_mode)) && !is_own_or_roots(status))
      return fmt::format("{} is {} of user {}, neither yours nor root's", path.string(),
                         is_link ? "a link" : "a FIFO", status.st_uid);
    std::error_code failed;
    if (!is_link || fs::canonical(path.parent_path(), failed).native().starts_with("/proc/"))
      return "";
    const fs::path target = fs::read_symlink(path, failed);
    if (failed) return "";
    path = path.parent_path() / target;  // an absolute target replaces the path
  }
  return "";
}

}  // namespace

const char* kind_of_file(mode_t mode) {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode)) return "a block device";
  return "a device";
}

std::string kind_fault(const fs::path& path) {
  Status status{};
  if (::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return "";
  return not_regular(status.st_mode);
}

std::string library_fault(const std::string& file) {
  if (file.find('/') == std::string::npos) return "";
  const std::string fault = kind_fault(file);
  return fault.empty() ? fault : file + ": " + fault;
}

FileDescriptor open_regular(const fs::path& path, int flags, std::string* why, mode_t mode) {
  *why = kind_fault(path);
  if (!why->empty()) return {};
  FileDescriptor file(::open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode));
  Status status{};
  if (!file || ::fstat(file.get(), &status) != 0)
    *why = std::strerror(errno);
  else if (!S_ISREG(status.st_mode))
    *why = not_regular(status.st_mode);
  if (!why->empty()) file.reset();
  return file;
}

bool is_stream(const fs::path& path) {
  Status status{};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

FileDescriptor open_stream(const fs::path& path, int flags, std::string* why) {
  const auto refuse_kind = [&](const Status& status) {
    if (!is_character_stream(status.st_mode))
      *why = fmt::format("it is {}; must be a file, a pipe or a character device",
                         kind_of_file(status.st_mode));
    return !why->empty();
  };
  *why = laid_by_another(path);
  Status status{};
  if (!why->empty()) return {};
  if (::stat(path.c_str(), &status) != 0) {
    *why = std::strerror(errno);
    return {};
  }
  if (refuse_kind(status)) return {};
  FileDescriptor file(::open(path.c_str(), flags | O_NOCTTY | O_CLOEXEC));
  if (!file || ::fstat(file.get(), &status) != 0)
    *why = std::strerror(errno);
  else
    refuse_kind(status);
  if (!why->empty()) file.reset();
  return file;
}

}  // namespace attune
