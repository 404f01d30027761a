// SPDX-License-Identifier: Apache-2.0
// Reads the environment, and finds the folder of the code that runs. There is no other way to read
// a variable. Used wherever a variable or a folder chooses code or files: options, the CPU plugin,
// NVRTC.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attune {

// Returns the variable's value, or nullopt if it is not set. A program with more rights than its
// caller (setuid, setgid, file capabilities) sees every variable as unset: the caller must not
// choose code that runs with those rights.
std::optional<std::string> environment_variable(const char* name);

// Returns the user's home directory: HOME, else the entry of the user database. Returns nullopt
// when neither is an absolute path.
std::optional<std::string> home_directory();

// Returns the paths of a list with ':' between them; empty entries are left out.
std::vector<std::filesystem::path> split_paths(const std::string& text);

// Returns the folder of the file that the code at `address` was loaded from, absolute and without
// links. Ignores names that the caller could choose: argv[0], and names relative to the current
// directory. Returns nullopt if the file has no other name.
std::optional<std::filesystem::path> code_folder(const void* address);

}  // namespace attune
