// SPDX-License-Identifier: Apache-2.0
// Writes a file atomically; see replace_file.hpp.
#include "generator/core/system/replace_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "generator/core/system/error.hpp"
#include "generator/core/system/open_file.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

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
