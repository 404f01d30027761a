// SPDX-License-Identifier: Apache-2.0
// What main.cpp says about a command line that cannot be: an unknown command or option, with what
// was probably meant.
#pragma once

#include <string>
#include <vector>

#include "tuner/cli/command_line.hpp"

namespace attune::cli {

// "help tune" as "tune --help", as people of other programs write it.
std::vector<std::string> with_help_option(std::vector<std::string> words);

// Throws kInvalidArgument when a word that should name a command does not.
void check_commands(const Command& program, const std::vector<std::string>& words);

// One sentence, with where to read on: the help of the command that was given.
std::string usage_error_text(const UsageFault& fault);

}  // namespace attune::cli
