// SPDX-License-Identifier: Apache-2.0
// The one way to read the environment. Used wherever a variable chooses code or files: options, the
// CPU plugin, NVRTC.
#pragma once

#include <optional>
#include <string>

namespace attune {

// nullopt when not set. Nothing is set in a program that has rights its caller lacks (setuid,
// setgid, file capabilities): there the environment is the caller's, and would choose what runs
// with those rights.
std::optional<std::string> environment_variable(const char* name);

// The user's home directory: HOME, else what the user database says. nullopt when neither is an
// absolute path.
std::optional<std::string> home_directory();

}  // namespace attune
