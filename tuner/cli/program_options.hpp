// SPDX-License-Identifier: Apache-2.0
// --score-mod and --mask-mod: a caller's programs, as files or as texts. Every command that takes
// problems has them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "generator/core/problem/problem.hpp"
#include "tuner/cli/command_line.hpp"

namespace attune::cli {

struct ProgramOptions {
  std::string score_mod, mask_mod;  // files or texts
};

void add_program_options(Command command, ProgramOptions* options);

// Returns a function that gives the programs to a problem. The caller validates the problem
// afterwards, because some problems are valid only with a program. Throws kInvalidArgument with
// file, line, column and a caret for a text that does not compile. The returned function throws
// kInvalidArgument if a problem already has a program of that kind.
std::function<void(Problem*)> giver_of(const ProgramOptions& options);
// Parses a problem's text and gives it the programs.
Problem parse_problem_with(const ProgramOptions& options, const std::string& text);

// Throws kInvalidArgument if a problem names a program whose text this process does not know. Call
// it before work that needs the text.
void require_programs(const std::vector<Problem>& problems);

// Returns the shell words that give a problem its programs: " --score-mod 'return score;'". Empty
// if the problem has no program.
std::string program_words(const Problem& problem);
// Returns the texts of a problem's programs under their names, for people; empty if the problem has
// no program.
std::string program_texts(const SpecFields& spec);

}  // namespace attune::cli
