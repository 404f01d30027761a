// SPDX-License-Identifier: Apache-2.0
// Checks that no other user can have written a file that holds code (a store, a bundle). Used by
// cache/store_file and runtime/bundle_folder.
//
// The check covers the whole path. Each directory and link on it must belong to this user, to root
// or to the owner of "/". Directories that others can write must be sticky, like /tmp. So nobody
// else can redirect the path after the check, and the file may be opened by name. The last
// directory must not be writable by others at all, since they could put a journal next to a
// database.
//
// Entries below a folder of ATTUNE_TRUST may belong to any user and be writable by a group, but not
// by everybody.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "generator/core/system/error.hpp"

namespace attune {

// Describes the checked file, for messages and for missing directories.
struct Guarded {
  const char* noun;                 // "store"
  ErrorCode code;                   // code of the errors thrown
  unsigned directory_mode = 0700;   // mode of new directories
  const char* companion = nullptr;  // suffix of a second file to check
};

// Returns the absolute path of the file at `path`, without links. Throws when the file is missing
// or not regular, or when others could change it or the way to it. Never opens the file, so a FIFO
// cannot block it.
std::filesystem::path private_file(const std::filesystem::path& path, const Guarded& what);
// Returns the same for a path where the file may be missing, or for a directory. Makes missing
// directories.
std::filesystem::path private_place(const std::filesystem::path& path, const Guarded& what);
std::filesystem::path private_folder(const std::filesystem::path& path, const Guarded& what);

// Returns the folders in ATTUNE_TRUST, with links resolved. Returns none if the variable is not
// set, or if the program has more rights than its caller. Throws kInvalidArgument for an entry that
// would trust everybody: "/", a home folder or a folder above one, a folder that all users can
// write, or a relative path.
std::vector<std::string> trusted_folders();

// True if `entry`, an absolute path without links, is one of `folders` or lies below one.
bool is_in_one_of(const std::vector<std::string>& folders, const std::string& entry);

}  // namespace attune
