// SPDX-License-Identifier: Apache-2.0
// The folders of ATTUNE_TRUST: files in them may belong to other users, or be writable by a group.
// Used by private_path.cpp, and by runtime/engine/options.cpp, which refuses a bad list at the
// border.
#pragma once

#include <string>
#include <vector>

namespace attune {

// Returns the folders in ATTUNE_TRUST, with links resolved. Returns none if the variable is not
// set, or if the program has more rights than its caller. Throws kInvalidArgument for an entry that
// would trust everybody: "/", a home folder or a folder above one, a folder that all users can
// write, or a relative path.
std::vector<std::string> trusted_folders();

// True if `entry`, an absolute path without links, is one of `folders` or lies below one.
bool is_in_one_of(const std::vector<std::string>& folders, const std::string& entry);

}  // namespace attune
