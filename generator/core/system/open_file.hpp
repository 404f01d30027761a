// SPDX-License-Identifier: Apache-2.0
// Opens files that another user may have replaced. The library opens only regular files (captures,
// pins, programs, stores, bundles, locks), so that a FIFO cannot block the calling process. The
// program attune also opens pipes and character devices that its user names.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "generator/core/system/file_descriptor.hpp"

namespace attune {

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

}  // namespace attune
