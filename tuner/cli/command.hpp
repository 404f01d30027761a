// SPDX-License-Identifier: Apache-2.0
// Shared by the commands of the program `attune`: how a command registers itself, and the exit
// codes that scripts may rely on. Each command has its own file, named after it; main.cpp lists
// them.
#pragma once

#include <string>
#include <vector>

#include "generator/core/system/error.hpp"
#include "tuner/cli/command_line.hpp"

namespace attune::cli {

// Frozen: scripts test these values.
enum ExitCode : int {
  kOk = 0,
  kUsage = 1,          // bad argument, option, file content
  kNotSupported = 2,   // a valid request that no kernel serves
  kWrongResult = 3,    // numerics outside the allowed error
  kMissing = 4,        // device, driver or compiler missing or failing
  kStorage = 5,        // store or file unreadable, unwritable, damaged
  kPartial = 6,        // the budget ended; measured results are kept
  kRegression = 7,     // bench --fail-if-slower
  kInternalError = 8,  // a bug in attune: please report it
};  // 128 + N: signal N ended a tune, such as 130 for Ctrl-C; measured results are kept

ExitCode exit_code_of(ErrorCode code);

// Adds a subcommand with --json and an example at the end of its help. `json` must outlive the
// parse.
Command add_command(Command program, const std::string& name, const std::string& what,
                    const std::string& example, bool* json);

// Returns the text of `attune help problem`: the keys of a problem.
std::string problem_help();

// Adds --problem: one required problem, or a list of problems. Both point to `attune help problem`.
void add_problem_option(Command command, std::string* problem);
void add_problem_option(Command command, std::vector<std::string>* problems);

// Adds --jobs, with an upper bound, because each compiler takes a thread.
void add_jobs_option(Command command, int* jobs);

// Each registers one command. Its callback stores the command's exit code in *exit_code and may
// throw attune::Error.
void add_doctor(Command program, int* exit_code);
void add_devices(Command program, int* exit_code);
void add_models(Command program, int* exit_code);
void add_tune(Command program, int* exit_code);
void add_bench(Command program, int* exit_code);
void add_check(Command program, int* exit_code);
void add_emit(Command program, int* exit_code);
void add_compile(Command program, int* exit_code);
void add_explain(Command program, int* exit_code);
void add_export(Command program, int* exit_code);
void add_report(Command program, int* exit_code);
void add_pin(Command program, int* exit_code);
void add_db(Command program, int* exit_code);
void add_version(Command program, int* exit_code);
void add_completion(Command program, int* exit_code);

}  // namespace attune::cli
