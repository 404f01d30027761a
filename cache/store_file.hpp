// SPDX-License-Identifier: Apache-2.0
// Checks that only the user may have written a store's file, creates it, and renames a damaged
// file.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace attune {

// The file that a path named at one moment; 0 if there was none.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId& other) const {
    return device == other.device && inode == other.inode;
  }
};
FileId file_id(const std::filesystem::path& path);

// Returns the absolute path of an existing store, without links. Only this user and root can make
// this path name another file. Throws kStore unless only they can write the file, its journal and
// all folders above (generator/core/system/private_path.hpp): images are code.
std::filesystem::path private_store(const std::filesystem::path& path);
// Does the same, and creates missing directories (0700) and the file (0600, empty). Throws kStore
// if they cannot be written.
std::filesystem::path create_store_file(const std::filesystem::path& path);

// Deletes the file `id` that create_store_file made, if it is still empty because its contents
// could not be written. A process that has the file open gets SqliteFault::kMoved and makes another
// file.
void drop_empty_store(const std::filesystem::path& path, const FileId& id);

// True if a file that SQLite refuses is a damaged store and not another program's file: it has the
// application id of stores, or their first table, or no content at all.
bool looks_like_damaged_store(const std::filesystem::path& path);
// Renames the damaged file `id`, and its journal, to <name>.corrupt-<time>[-n]. Does nothing if the
// path names another file by now, because another process was faster. Returns the new name, or ""
// if nothing was done.
std::filesystem::path set_aside(const std::filesystem::path& path, const FileId& id);

}  // namespace attune
