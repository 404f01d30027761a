// SPDX-License-Identifier: Apache-2.0
// Finds the folder of the program or library that holds some code. Used to find plugins next to it.
#pragma once

#include <filesystem>
#include <optional>

namespace attune {

// Returns the folder of the file that the code at `address` was loaded from, absolute and without
// links. Ignores names that the caller could choose: argv[0], and names relative to the current
// directory. Returns nullopt if the file has no other name.
std::optional<std::filesystem::path> code_folder(const void* address);

}  // namespace attune
