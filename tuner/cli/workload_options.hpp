// SPDX-License-Identifier: Apache-2.0
// Which problems a command works on: a model's config.json, --problem, or --captured; with
// --seqlen, --batch and --dtype lists and the options of 8-bit operands. Used by tune, bench, check
// and compile; the first three run them here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/core/arch.hpp"
#include "generator/core/problem.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/program_options.hpp"
#include "tuner/cli/workload_output.hpp"

namespace attune::cli {

struct WorkloadOptions {
  std::string model;                     // path, or name in the Hugging Face cache
  std::string read_as;                   // a model_type
  std::vector<std::string> problems;     // texts
  std::string captured;                  // path of JSON lines
  std::string seqlens, batches, dtypes;  // lists as given
  std::string accuracy, v_layout;        // of 8-bit operands; as given
  int scale_block = 0;
  bool padded = false;         // of MODEL
  bool training = false;       // gradients, too
  double dropout = 0;          // with these
  bool deterministic = false;  // of these
  ProgramOptions programs;
};

// Positional MODEL, --as, --problem, --captured, --seqlen, --batch, --padded, --dtype, --accuracy,
// --v-layout, --scale-block, --training, --dropout, --deterministic, --score-mod, --mask-mod.
void add_workload_options(Command command, WorkloadOptions* options);

// MODEL and what goes with it: all of the above but --problem, --captured and programs.
void add_model_options(Command command, WorkloadOptions* options);

// All problems, each once, in the order given; `target` decides a model's default lengths. Throws
// kInvalidArgument for bad or missing input, kIo for an unreadable file. Its notes (sinks that are
// not supported, say) go to stderr.
Workload workload_of(const WorkloadOptions& options, Target target);

// Whether any problem is named, by text, model or captured file.
bool has_problems(const WorkloadOptions& options);

// The first option given that says what MODEL or --problem are to be; empty where none is.
std::string first_given(const WorkloadOptions& options);

// Adds a note to the workload, and prints it on stderr.
void add_note(const std::string& text, Workload* workload);
// Adds a note for each reason why only the slow reference kernel serves a problem there.
void note_slow_kernels(const Arch& arch, Workload* workload);

// What every command that runs a workload on this machine takes.
struct RunOptions {
  bool json = false;
  MachineOptions machine;
  WorkloadOptions workload;
  std::string template_name;  // empty: every one that serves the problem
  uint64_t seed = 1;
};

// A subcommand with these; `template_help` says what --template does there.
Command add_run_command(Command program, const std::string& name, const std::string& what,
                        const std::string& example, const std::string& template_help,
                        RunOptions* options);

}  // namespace attune::cli
