// SPDX-License-Identifier: Apache-2.0
// The folders of ATTUNE_TRUST: files in them may belong to other users, or be writable by a group.
// Used by private_path.cpp, and by runtime/options.cpp, which refuses a bad list at the border.
#pragma once

#include <string>
#include <vector>

namespace attune {

// Returns the folders that ATTUNE_TRUST names, without links. Returns none if it is not set, and in
// a program with rights that its caller lacks. Throws kInvalidArgument for an entry that is not an
// absolute path, or is "/", a home folder, a folder above one, or writable by all users: that would
// trust everybody there.
std::vector<std::string> trusted_folders();

// True if `entry`, an absolute path without links, is one of `folders` or lies below one.
bool is_in_one_of(const std::vector<std::string>& folders, const std::string& entry);

}  // namespace attune
