// SPDX-License-Identifier: Apache-2.0
// Opens, reads and replaces files that a user named, or that another user may have replaced. The
// library opens only regular files (captures, pins, programs, stores, bundles, locks), so that a
// FIFO cannot block the calling process. The program attune also opens pipes and character devices
// that its user names.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "generator/core/system/unique_handle.hpp"

namespace attune {

struct FileDescriptorTraits {
  using Handle = int;
  static Handle none() { return -1; }
  static void close(Handle file) noexcept { ::close(file); }
};
using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

// Returns the kind of a file with this mode, for messages: "a regular file", "a FIFO", "a block
// device".
const char* kind_of_file(mode_t mode);
// Returns the reason why `path` cannot be opened as a regular file, such as "it is a FIFO, not a
// regular file". Returns "" for a regular or missing file.
std::string kind_fault(const std::filesystem::path& path);

// Returns kind_fault of a library that dlopen would open, as "FILE: it is a FIFO, ...", since
// dlopen blocks on a FIFO. Returns "" for a name without '/', which the loader searches for.
std::string library_fault(const std::string& file);

// Opens the regular file at `path` without blocking. `flags` are those of open(2); `mode` applies
// if O_CREAT makes the file. On failure returns no file, and sets `why` to the reason.
FileDescriptor open_regular(const std::filesystem::path& path, int flags, std::string* why,
                            mode_t mode = 0);

// True if `path` is neither a regular file nor a directory, but exists.
bool is_stream(const std::filesystem::path& path);
// Opens the pipe or character device at `path`, as open_regular opens a file, but waits for the
// other end of a FIFO. Follows links in the path's last component. Refuses a link or FIFO on the
// way that belongs neither to this user nor to root, since another user may have put it there.
FileDescriptor open_stream(const std::filesystem::path& path, int flags, std::string* why);

// kRegular is for the library. The program also reads pipes and character devices that its user
// names.
enum class FileKinds { kRegular, kStreamsToo };

// Throws kIo with `noun` ("the program file"), the path and the reason: it is a folder or has
// another wrong kind, it is larger than `most` bytes, or the system's error.
std::string read_file(std::string_view noun, const std::filesystem::path& path, size_t most,
                      FileKinds kinds = FileKinds::kRegular);

// Writes `bytes` to `path`. First writes a new file next to it (<name>.<pid>-<n>.part), under a
// name that did not exist. Renames that file once it is on the disk. So after a crash or power
// failure, `path` has either the old or the new contents.
//
// A link at `path` is replaced, not followed. A character device or a pipe receives the bytes, also
// through a link (/dev/null, /dev/stdout). Block devices, and FIFOs or links of other users, are
// refused (open_stream). The umask limits `mode`. Throws kIo with the path and the reason.
void replace_file(const std::filesystem::path& path, std::string_view bytes, unsigned mode = 0666);

}  // namespace attune
