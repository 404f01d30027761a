// SPDX-License-Identifier: Apache-2.0
// Finds the folder of the program or library that holds some code. Used to find plugins next to it.
#pragma once

#include <filesystem>
#include <optional>

namespace attune {

// Returns the folder of the file that the code at `address` was loaded from, absolute and without
// links. It trusts no name that is relative to the current directory, and none that the caller
// gave, such as argv[0]. Returns nullopt when no other name is known.
std::optional<std::filesystem::path> code_folder(const void* address);

}  // namespace attune
