// SPDX-License-Identifier: Apache-2.0
// Opens files that somebody else may have put there. The library opens (captures, pins, programs,
// stores, bundles, locks) only regular files, so that no FIFO blocks its host. The program also
// takes pipes and character devices that its user names.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "generator/core/file_descriptor.hpp"

namespace attune {

// Returns the kind of a file with this mode, for messages: "a regular file", "a FIFO", "a block
// device".
const char* kind_of_file(mode_t mode);
// Returns why `path` is not opened as a regular file: "it is a FIFO, not a regular file". Returns
// "" if it is one, or is missing.
std::string kind_fault(const std::filesystem::path& path);

// Returns kind_fault of a library that dlopen would read, "FILE: it is a FIFO, ...", because dlopen
// waits for a FIFO. Returns "" for a name without '/', which the loader looks up.
std::string library_fault(const std::string& file);

// Opens the regular file at `path`, never waiting. `flags` are those of open(2); `mode` is for a
// file that O_CREAT makes. On failure returns no file, and the reason in `why`.
FileDescriptor open_regular(const std::filesystem::path& path, int flags, std::string* why,
                            mode_t mode = 0);

// True if `path` is neither a regular file nor a directory, but exists.
bool is_stream(const std::filesystem::path& path);
// Opens the pipe or character device at `path`, as open_regular does, but waits for the other end
// of a FIFO. It follows the links of the path's last name, and refuses a FIFO or link on the way
// that belongs neither to this user nor to root: another user may have put it there.
FileDescriptor open_stream(const std::filesystem::path& path, int flags, std::string* why);

}  // namespace attune
