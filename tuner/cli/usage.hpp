// SPDX-License-Identifier: Apache-2.0
// What main.cpp says about a wrong command line: the command or option that is unknown, and what
// was probably meant.
#pragma once

#include <string>
#include <vector>

#include "tuner/cli/command_line.hpp"

namespace attune::cli {

// Reads "help tune", as people write it for other programs, as "tune --help".
std::vector<std::string> with_help_option(std::vector<std::string> words);

// Throws kInvalidArgument when a word that should name a command does not.
void check_commands(const Command& program, const std::vector<std::string>& words);

// One sentence, with where to read on: the help of the command that was given.
std::string usage_error_text(const UsageFault& fault);

}  // namespace attune::cli
