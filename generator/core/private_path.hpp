// SPDX-License-Identifier: Apache-2.0
// Files that hold code (stores, bundles): who may have written them. Used by cache/store_file and
// runtime/bundle_folder.
//
// The check covers everything on the way to the file: each directory and link belongs to this user,
// to root or to the owner of "/", and no directory can be written by others unless it is sticky, as
// /tmp is. Then nobody else can make the path name another file later on, and it may be opened by
// its name. The last directory may not even be sticky: whoever can make files in it could lay a
// journal beside a database.
// Below a folder of ATTUNE_TRUST (trusted_folders.hpp) an entry may belong to anybody, and its group
// may write it; what everybody can write is refused there too.
#pragma once

#include <filesystem>

#include "generator/core/error.hpp"

namespace attune {

// What is guarded, for messages.
struct Guarded {
  const char* noun;                 // "store"
  ErrorCode code;                   // of the errors thrown
  unsigned directory_mode = 0700;   // of directories that are made
  const char* companion = nullptr;  // ending of another file beside it, which is as private
};

// The absolute path of the file at `path`, without links. Throws when the file is missing or is not
// a regular file, or when it or the way to it could be changed by others. Never opens the file, so
// a FIFO cannot hang it.
std::filesystem::path private_file(const std::filesystem::path& path, const Guarded& what);
// The same for a file that may be missing, and for a directory; missing directories are made.
std::filesystem::path private_place(const std::filesystem::path& path, const Guarded& what);
std::filesystem::path private_folder(const std::filesystem::path& path, const Guarded& what);

}  // namespace attune
