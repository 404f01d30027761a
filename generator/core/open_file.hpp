// SPDX-License-Identifier: Apache-2.0
// Opening files that somebody else may have put there. What the library opens (captures, pins,
// programs, stores, bundles, locks) is a regular file, so that no FIFO stops its host. The program
// also takes pipes and character devices that its user names.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "generator/core/file_descriptor.hpp"

namespace attune {

// Returns what a file of this mode is, for messages: "a regular file", "a FIFO", "a block device".
const char* kind_of_file(mode_t mode);
// Returns why the file at `path` is not opened as a regular one, "it is a FIFO, not a regular
// file"; "" where it is one, or is missing.
std::string kind_fault(const std::filesystem::path& path);

// Returns kind_fault of a library that dlopen would read, "FILE: it is a FIFO, ..": dlopen waits for
// a FIFO. "" for a name without '/', which the loader looks up.
std::string library_fault(const std::string& file);

// Opens the regular file at `path`, never waiting. `flags` are those of open(2), `mode` is for a
// file that O_CREAT makes. Returns none, and the reason in `why`, when that fails.
FileDescriptor open_regular(const std::filesystem::path& path, int flags, std::string* why,
                            mode_t mode = 0);

// True if a file stands at `path` that is neither a regular file nor a directory.
bool is_stream(const std::filesystem::path& path);
// Opens the pipe or character device at `path`, as open_regular does; waits for the other end of a
// FIFO. Refuses a FIFO or a link on the way from the path's last name that belongs neither to this
// user nor to root: another user may have laid it there.
FileDescriptor open_stream(const std::filesystem::path& path, int flags, std::string* why);

}  // namespace attune
