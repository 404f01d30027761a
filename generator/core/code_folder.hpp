// SPDX-License-Identifier: Apache-2.0
// Where the program or library that holds some code lies. Used to find the plugins beside it.
#pragma once

#include <filesystem>
#include <optional>

namespace attune {

// The folder of the file that the code at `address` was loaded from, absolute and without links.
// It trusts no name that is relative to the current directory or that the caller gave, as argv[0]
// is: it returns nullopt when nothing else is known.
std::optional<std::filesystem::path> code_folder(const void* address);

}  // namespace attune
