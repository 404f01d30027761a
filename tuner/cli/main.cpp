// SPDX-License-Identifier: Apache-2.0
// The program `attune`: parses the command line, runs one command, turns errors into one sentence
// and an exit code. The commands stand beside this file, one each; what they share is in
// command.hpp.
#include <cstdio>
#include <exception>
#include <string_view>

#include "generator/core/log.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/measure_worker.hpp"

namespace {

using namespace attune;
using namespace attune::cli;

constexpr const char* kFooter =
    "Exit codes: 0 ok, 1 bad usage or input, 2 not supported, 3 wrong numerics, 4 device, driver "
    "or compiler missing,\n"
    "            5 store or file, 6 budget ended with a partial result, 7 slower than allowed.\n"
    "Start with:  attune doctor\n"
    "             attune tune examples/models/Llama-3.1-8B/config.json";

void add_commands(CLI::App& program, int* exit_code) {
  add_doctor(program, exit_code);
  add_devices(program, exit_code);
  add_tune(program, exit_code);
  add_bench(program, exit_code);
  add_check(program, exit_code);
  add_explain(program, exit_code);
  add_emit(program, exit_code);
  add_compile(program, exit_code);
  add_export(program, exit_code);
  add_db(program, exit_code);
  add_version(program, exit_code);
}

void print_log(LogLevel level, std::string_view message) {
  if (level < LogLevel::kWarning) return;
  std::fprintf(stderr, "attune: %s: %.*s\n", level == LogLevel::kWarning ? "warning" : "error",
               static_cast<int>(message.size()), message.data());
}

int run_program(int argc, char** argv) {
  CLI::App program("attune makes attention kernels for the machine it stands on.", "attune");
  program.require_subcommand(1);
  program.footer(kFooter);
  int exit_code = kOk;
  add_commands(program, &exit_code);
  try {
    program.parse(argc, argv);
    return exit_code;
  } catch (const CLI::Success& asked_for_help) {
    return program.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "attune: %s (attune --help lists the commands)\n", error.what());
    return kUsage;
  } catch (const Error& error) {
    std::fprintf(stderr, "attune: %s\n", error.what());
    return exit_code_of(error.code());
  }
}

}  // namespace

int main(int argc, char** argv) {
  set_log_sink(print_log);
  try {
    // The tuner's child process (tuner/isolated_backend.hpp); not for people.
    if (argc == 3 && std::string_view(argv[1]) == "worker") return measure_worker_main(argv[2]);
    return run_program(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attune: internal error: %s\n", error.what());
    return kInternalError;
  }
}
