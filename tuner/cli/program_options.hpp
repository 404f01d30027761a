// SPDX-License-Identifier: Apache-2.0
// --score-mod and --mask-mod: a caller's programs, from files or as they stand there. Every command that takes problems has them.
#pragma once

#include <string>
#include <vector>

#include "generator/core/problem.hpp"
#include "tuner/cli/command_line.hpp"

namespace attune::cli {

struct ProgramOptions {
  std::string score_mod, mask_mod;  // files or texts
};

void add_program_options(Command command, ProgramOptions* options);

// Gives the programs to each problem. Throws kInvalidArgument where one has a program of that kind already, and with
// file, line, column and a caret for a text that is not of the language.
void give_programs(const ProgramOptions& options, const std::vector<Problem*>& problems);
Problem with_programs(const ProgramOptions& options, Problem problem);

// The words that give a problem's programs back, as a shell takes them: " --score-mod 'return score;'". Empty where it has none.
std::string program_words(const Problem& problem);
// One word as a shell takes it, on one line.
std::string shell_word(const std::string& text);
// The texts of a problem's programs for people, under their names; empty where it has none.
std::string program_texts(const SpecFields& spec);

}  // namespace attune::cli
