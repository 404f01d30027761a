// SPDX-License-Identifier: Apache-2.0
// Exit codes of errors, and the frame every subcommand has.
#include "tuner/cli/command.hpp"

namespace attune::cli {

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

CLI::App* add_command(CLI::App& program, const std::string& name, const std::string& what,
                      const std::string& example, bool* json) {
  CLI::App* command = program.add_subcommand(name, what);
  command->add_flag("--json", *json, "Print one JSON object (SI units) instead of text");
  command->footer("Example:\n  " + example);
  return command;
}

}  // namespace attune::cli
