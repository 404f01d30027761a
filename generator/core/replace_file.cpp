// SPDX-License-Identifier: Apache-2.0
// Writing a file whole or not at all; see replace_file.hpp.
#include "generator/core/replace_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "generator/core/error.hpp"
#include "generator/core/file_descriptor.hpp"

namespace attune {
namespace {

constexpr int kMostNames = 100;  // left by processes that were killed

// A new file beside `path`, and its name.
FileDescriptor open_beside(const std::filesystem::path& path, unsigned mode, std::string* name) {
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

}  // namespace

void replace_file(const std::filesystem::path& path, std::string_view bytes, unsigned mode) {
  std::string partial;
  FileDescriptor file = open_beside(path, mode, &partial);
  const bool opened = static_cast<bool>(file);
  const bool written = opened && write_all(file.get(), bytes) && ::close(file.release()) == 0;
  if (written && std::rename(partial.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  if (opened) ::unlink(partial.c_str());
  throw Error(ErrorCode::kIo,
              fmt::format("cannot write {}: {}", path.string(), std::strerror(reason)));
}

}  // namespace attune
