// SPDX-License-Identifier: Apache-2.0
// --score-mod and --mask-mod: a caller's programs, from files or as they stand there. Every command that takes problems has them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "generator/core/problem.hpp"
#include "tuner/cli/command_line.hpp"

namespace attune::cli {

struct ProgramOptions {
  std::string score_mod, mask_mod;  // files or texts
};

void add_program_options(Command command, ProgramOptions* options);

// What gives the programs to a problem, which the caller validates behind that: some are valid with a program alone. Throws
// kInvalidArgument with file, line, column and a caret for a text that is not of the language; the giver does where a problem has
// a program of that kind already.
std::function<void(Problem*)> giver_of(const ProgramOptions& options);
// The problem of a text, with the programs.
Problem parse_problem_with(const ProgramOptions& options, const std::string& text);

// Throws kInvalidArgument where a problem names a program that this process does not know: before work that needs its text.
void require_programs(const std::vector<Problem>& problems);

// The words that give a problem's programs back, as a shell takes them: " --score-mod 'return score;'". Empty where it has none.
std::string program_words(const Problem& problem);
// The texts of a problem's programs for people, under their names; empty where it has none.
std::string program_texts(const SpecFields& spec);

}  // namespace attune::cli
