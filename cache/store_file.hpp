// SPDX-License-Identifier: Apache-2.0
// The file under a store: who may have written it, how it is created, and how a damaged one is set
// aside.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace attune {

// Which file a path named at one moment; 0 when there was none.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId& other) const {
    return device == other.device && inode == other.inode;
  }
};
FileId file_id(const std::filesystem::path& path);

// The absolute path of an existing store, without links, which nobody but this user and root can
// make name another file. Throws kStore unless they alone can write the file, its journal and what
// leads to them (generator/core/private_path.hpp): images are code.
std::filesystem::path private_store(const std::filesystem::path& path);
// The same; creates missing directories (0700) and the file (0600, empty). Throws kStore when they
// cannot be written.
std::filesystem::path create_store_file(const std::filesystem::path& path);

// Deletes the file `id` that create_store_file made, if it stands there without a byte still: what was to be in it could not be written.
// A process that has it open meanwhile hears so, and makes another (SqliteFault::kMoved).
void drop_empty_store(const std::filesystem::path& path, const FileId& id);

// Whether a file that SQLite refuses is what is left of a store, and not some other program's file:
// it carries the mark of stores, or their first table, or nothing at all.
bool looks_like_damaged_store(const std::filesystem::path& path);
// Renames the damaged file `id`, and its journal, to <name>.corrupt-<time>[-n]. Does nothing when
// the path names another file by now: then another process was faster. Returns the new name, empty
// when nothing was done.
std::filesystem::path set_aside(const std::filesystem::path& path, const FileId& id);

}  // namespace attune
