// SPDX-License-Identifier: Apache-2.0
// Exit codes of errors, and the parts that all subcommands have.
#include "tuner/cli/command.hpp"

#include <fmt/format.h>

#include "generator/core/problem/problem_fields.hpp"

namespace attune::cli {
namespace {

void add_problem_keys(Command command) {
  command.add_footer("Keys of a problem: attune help problem");
}

}  // namespace

std::string problem_help() {
  std::string text =
      "A problem is a list key=value,... such as\n"
      "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal. Its keys:\n";
  for (const ProblemKey& key : problem_keys())
    text += fmt::format("  {:14}  {}: {}\n", key.name, key.accepted, key.meaning);
  return text;
}

ExitCode exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kUsage;
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotTuned:
      return kNotSupported;
    case ErrorCode::kWouldCompile:
    case ErrorCode::kCompile:
    case ErrorCode::kDriver:
    case ErrorCode::kOutOfMemory:
      return kMissing;
    case ErrorCode::kStore:
    case ErrorCode::kIo:
      return kStorage;
    case ErrorCode::kInternal:
      return kInternalError;
  }
  return kInternalError;
}

Command add_command(Command program, const std::string& name, const std::string& what,
                    const std::string& example, bool* json) {
  Command command = program.add_command(name, what);
  command.add_flag("--json", *json, "Print one JSON object (SI units) instead of text");
  command.add_footer("Example:\n  " + example);
  return command;
}

void add_problem_option(Command command, std::string* problem) {
  command.add_option("--problem", *problem, "The problem, key=value,...").required();
  add_problem_keys(command);
}

void add_problem_option(Command command, std::vector<std::string>* problems) {
  command.add_option("--problem", *problems, "A problem, key=value,...; may be given several times")
      .repeated();
  add_problem_keys(command);
}

void add_jobs_option(Command command, int* jobs) {
  constexpr int kMostJobs = 1024;
  command
      .add_option("--jobs", *jobs,
                  "Number of kernels to compile at the same time; 0: chosen for this machine")
      .between(0, kMostJobs)
      .shows_default();
}

}  // namespace attune::cli
