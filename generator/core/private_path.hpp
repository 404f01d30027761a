// SPDX-License-Identifier: Apache-2.0
// Checks who may have written a file that holds code (a store, a bundle). Used by cache/store_file
// and runtime/bundle_folder.
//
// The check covers everything on the way to the file: each directory and link belongs to this user,
// to root or to the owner of "/". No directory can be written by others unless it is sticky, as
// /tmp is. Then nobody else can make the path name another file later, and it may be opened by
// name. The last directory may not even be sticky: whoever can make files in it could put a journal
// next to a database. Below a folder of ATTUNE_TRUST (trusted_folders.hpp) an entry may belong to
// anybody, and its group may write it; an entry that everybody can write is refused there too.
#pragma once

#include <filesystem>

#include "generator/core/error.hpp"

namespace attune {

// The guarded thing, for messages.
struct Guarded {
  const char* noun;                 // "store"
  ErrorCode code;                   // of the errors thrown
  unsigned directory_mode = 0700;   // of directories that are made
  const char* companion = nullptr;  // suffix of a companion file, which is as private
};

// Returns the absolute path of the file at `path`, without links. Throws when the file is missing
// or not regular, or when others could change it or the way to it. Never opens the file, so a FIFO
// cannot block it.
std::filesystem::path private_file(const std::filesystem::path& path, const Guarded& what);
// Does the same for a file that may be missing, and for a directory; missing directories are made.
std::filesystem::path private_place(const std::filesystem::path& path, const Guarded& what);
std::filesystem::path private_folder(const std::filesystem::path& path, const Guarded& what);

}  // namespace attune
