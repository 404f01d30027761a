// SPDX-License-Identifier: Apache-2.0
// See files.hpp. The kind of a file is checked before opening, because opening some devices has
// effects. It is checked again afterwards, because the file may have been replaced in between.
#include "generator/core/system/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "generator/core/system/error.hpp"

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

std::string read_file(std::string_view noun, const std::filesystem::path& path, size_t most,
                      FileKinds kinds) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorCode::kIo, fmt::format("{} {} cannot be read: {}", noun, path.string(), why));
  };
  std::error_code unused;
  if (std::filesystem::is_directory(path, unused)) refuse("it is a folder");
  std::string why;
  const FileDescriptor file = kinds == FileKinds::kStreamsToo && is_stream(path)
                                  ? open_stream(path, O_RDONLY, &why)
                                  : open_regular(path, O_RDONLY, &why);
  if (!file) refuse(why);
  std::string text;
  std::vector<char> piece(size_t{1} << 16);
  for (;;) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(std::strerror(errno));
    if (got == 0) return text;
    text.append(piece.data(), static_cast<size_t>(got));
    if (text.size() > most) refuse(fmt::format("it is larger than {} bytes", most));
  }
}

namespace {

constexpr int kMostNames = 100;  // killed processes leave .part files

[[noreturn]] void fail(const fs::path& path, std::string_view why) {
  throw Error(ErrorCode::kIo, fmt::format("cannot write {}: {}", path.string(), why));
}

// Makes a new file next to `path`, and sets `name` to its path.
FileDescriptor open_beside(const fs::path& path, unsigned mode, std::string* name) {
  FileDescriptor file;
  for (int n = 0; n < kMostNames && !file; ++n) {
    *name = fmt::format("{}.{}-{}.part", path.string(), ::getpid(), n);
    file.reset(::open(name->c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, mode));
    if (!file && errno != EEXIST) break;
  }
  return file;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void write_stream(const fs::path& path, std::string_view bytes) {
  std::string why;
  const FileDescriptor stream = open_stream(path, O_WRONLY, &why);
  if (!stream) fail(path, why);
  if (!write_all(stream.get(), bytes)) fail(path, std::strerror(errno));
}

// Refuses /dev/stdout and similar links if they point to a regular file.
void refuse_link_of_system(const fs::path& path) {
  std::error_code no_link;
  if (fs::read_symlink(path, no_link).native().starts_with("/proc/"))
    throw Error(
        ErrorCode::kIo,
        fmt::format(
            "cannot write {}: it is a system link to an open file; give that file's own name",
            path.string()));
}

// Refuses to overwrite a store, so that no page or list replaces tuned results.
void refuse_store(const fs::path& path, std::string_view bytes) {
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  char begin[kMagic.size()] = {};
  std::string unused;
  const FileDescriptor file = open_regular(path, O_RDONLY, &unused);
  if (!file || ::read(file.get(), begin, sizeof begin) != sizeof begin) return;
  if (std::string_view(begin, sizeof begin) == kMagic && !bytes.starts_with(kMagic))
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("cannot write {}: it is a store; give another file, or remove the store first",
                    path.string()));
}

}  // namespace

void replace_file(const fs::path& path, std::string_view bytes, unsigned mode) {
  if (is_stream(path)) return write_stream(path, bytes);
  refuse_link_of_system(path);
  refuse_store(path, bytes);
  std::string partial;
  FileDescriptor file = open_beside(path, mode, &partial);
  const bool opened = static_cast<bool>(file);
  const bool written = opened && write_all(file.get(), bytes) && ::fsync(file.get()) == 0 &&
                       ::close(file.release()) == 0;
  if (written && std::rename(partial.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  if (opened) ::unlink(partial.c_str());
  fail(path, std::strerror(reason));
}

}  // namespace attune
