// SPDX-License-Identifier: Apache-2.0
// The program `attune`: parses the command line, runs one command, and turns errors into one
// sentence and an exit code. Each command has its own file in this folder; command.hpp has what
// they share.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "runtime/engine/options.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/command_line.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/measure/measure_protocol.hpp"

namespace {

using namespace attune;
using namespace attune::cli;

constexpr const char* kFooter =
    "Exit codes: 0 ok, 1 bad usage or input, 2 not supported, 3 wrong numerics,\n"
    "            4 device, driver or compiler missing, 5 store or file, 6 budget ended\n"
    "            with a partial result, 7 slower than allowed, 130 Ctrl-C.\n"
    "Start with:  attune doctor\n"
    "             attune tune examples/models/Llama-3.1-8B/config.json";

void add_commands(Command program, int* exit_code) {
  add_doctor(program, exit_code);
  add_devices(program, exit_code);
  add_models(program, exit_code);
  add_tune(program, exit_code);
  add_bench(program, exit_code);
  add_check(program, exit_code);
  add_explain(program, exit_code);
  add_emit(program, exit_code);
  add_compile(program, exit_code);
  add_export(program, exit_code);
  add_report(program, exit_code);
  add_pin(program, exit_code);
  add_db(program, exit_code);
  add_version(program, exit_code);
  add_completion(program, exit_code);
}

// Prints each text once, because one damaged file may be reported for every kernel.
void print_log(LogLevel lowest, LogLevel level, std::string_view message) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> printed;
  const std::lock_guard lock(mutex);
  if (level < lowest || !printed.emplace(message).second) return;
  print_notice(fmt::format("attune: {}: {}", log_level_name(level), message));
}

// Prints warnings by default: the user must see that something is damaged, refused or replaced.
void start_log() {
  LogLevel lowest = LogLevel::kWarning;
  std::string refused;
  try {
    lowest = log_level_from_environment().value_or(lowest);
  } catch (const Error& error) {
    refused = error.what();  // a command that reads the environment fails with this error
  }
  set_log_sink(
      [lowest](LogLevel level, std::string_view message) { print_log(lowest, level, message); });
  if (!refused.empty()) log(LogCode::kEnvironmentNotUnderstood, refused);
}

// Prints one sentence on stderr and, with --json, the same on stdout. Returns the exit code.
int refuse(const std::vector<std::string>& words, int exit_code, const char* code,
           const std::string& message) {
  print_notice("attune: " + message);
  if (std::find(words.begin(), words.end(), "--json") == words.end()) return exit_code;
  try {
    print_json("error",
               {{"error", {{"code", code}, {"message", message}, {"exit_code", exit_code}}}});
  } catch (const Error&) {  // stdout does not work; the exit code and stderr report the error
  }
  return exit_code;
}

int run_program(int argc, char** argv) {
  Program program("attune makes attention kernels for the machine that it runs on.", "attune",
                  "attune " ATTUNE_VERSION);
  Command commands = program.command();
  commands.require_command();
  commands.add_footer(kFooter);
  int exit_code = kOk;
  add_commands(commands, &exit_code);
  const std::vector<std::string> given(argv + 1, argv + argc);
  if (given == std::vector<std::string>{"help", "problem"}) {
    print(problem_help());
    return kOk;
  }
  const std::vector<std::string> words = with_help_option(given);
  try {
    check_commands(commands, words);
    const Program::Outcome outcome = program.run(words);
    print(outcome.text);
    if (!outcome.fault) return exit_code;
    return refuse(words, kUsage, error_code_name(ErrorCode::kInvalidArgument),
                  usage_error_text(*outcome.fault));
  } catch (const Error& error) {
    return refuse(words, exit_code_of(error.code()), error_code_name(error.code()), error.what());
  }
}

}  // namespace

// Called by start/. Throws nothing.
extern "C" int attune_program(int argc, char** argv) {
  try {
    std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit (ulimit -f) is an error, like a full disk
    start_log();
    // The tuner's child process (tuner/measure/isolated_backend.hpp); not for users.
    if (argc == 3 && std::string_view(argv[1]) == "worker") return measure_worker_main(argv[2]);
    return run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    print_notice("attune: this command needs more host memory than is free");
    return kMissing;
  } catch (const std::exception& error) {
    print_notice(fmt::format("attune: internal error: {}", error.what()));
    return kInternalError;
  }
}
