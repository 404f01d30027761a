// SPDX-License-Identifier: Apache-2.0
// The messages of main.cpp about a wrong command line: the unknown command or option, and a
// suggestion.
#pragma once

#include <string>
#include <vector>

#include "tuner/cli/command_line.hpp"

namespace attune::cli {

// Turns "help tune", a form that other programs accept, into "tune --help".
std::vector<std::string> with_help_option(std::vector<std::string> words);

// Throws kInvalidArgument if a word that should name a command does not.
void check_commands(const Command& program, const std::vector<std::string>& words);

// Returns "; did you mean tune?" for a word that resembles known ones, else "".
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

// Returns one sentence that also names the help of the given command.
std::string usage_error_text(const UsageFault& fault);

}  // namespace attune::cli
