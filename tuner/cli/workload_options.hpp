// SPDX-License-Identifier: Apache-2.0
// The problems that a command works on: a model's config.json, --problem, or --captured, with
// --seqlen, --batch and --dtype lists and the options of 8-bit operands. Used by tune, bench, check
// and compile. The first three also run the problems on this machine. explain and report use MODEL
// and its options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/core/problem/arch.hpp"
#include "generator/core/problem/problem.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/record_output.hpp"
#include "tuner/cli/program_options.hpp"

namespace attune::cli {

struct WorkloadOptions {
  std::string model;                     // path, or name in the Hugging Face cache
  std::string read_as;                   // a model_type
  std::vector<std::string> problems;     // texts
  std::vector<std::string> captured;     // paths of JSON lines, or of their folders
  int top = 0;                           // buckets of --captured to keep; 0: all
  bool tells_notes = true;               // prints the notes of the workload
  std::string seqlens, batches, dtypes;  // lists as given
  std::string accuracy, v_layout;        // for 8-bit operands; as given
  int scale_block = 0;
  bool padded = false;                      // for MODEL
  bool training = false;                    // adds gradients
  double dropout = 0;                       // of the gradients' problems
  bool deterministic = false;               // of the gradients' problems
  bool serving = false;                     // MODEL's decoders get the problems of an engine
  std::string kv_lengths, kv_dtype;         // with serving; as given
  int page_size = 0, max_batch_tokens = 0;  // with serving; 0: defaults
  int tensor_parallel = 0;                  // with serving; 0: 1
  ProgramOptions programs;
};

// Adds positional MODEL, --as, --problem, --captured, --top, --seqlen, --batch, --padded, --dtype,
// --accuracy, --v-layout, --scale-block, --training, --dropout, --deterministic, --score-mod,
// --mask-mod.
void add_workload_options(Command command, WorkloadOptions* options);

// Adds MODEL and its options: --as, --seqlen, --batch, --padded, --dtype, --accuracy, --v-layout,
// --scale-block, --serving, --kv-lengths, --page-size, --max-batch-tokens,
// --tensor-parallel and --kv-dtype.
void add_model_options(Command command, WorkloadOptions* options);

// Returns all problems, each once, in the order given. `target` decides a model's default lengths.
// Throws kInvalidArgument for bad or missing input, and kIo for an unreadable file. Prints the
// workload's notes (for example on sinks that are not supported) to stderr. `memory_bytes` is the
// device's memory, which limits caches of --serving; 0: not known.
Workload workload_of(const WorkloadOptions& options, Target target, int64_t memory_bytes = 0);

// True if --problem, MODEL or --captured is given.
bool has_problems(const WorkloadOptions& options);

// Returns the first given option that changes the problems of MODEL; empty if there is none.
std::string first_given(const WorkloadOptions& options);

// Adds a note to the workload, and prints it to stderr.
void add_note(const std::string& text, Workload* workload);
// Adds a note for each reason why only the slow reference kernel serves a problem on `arch`.
void note_slow_kernels(const Arch& arch, Workload* workload);

// Options of each command that runs a workload on this machine.
struct RunOptions {
  bool json = false;
  MachineOptions machine;
  WorkloadOptions workload;
  std::string template_name;  // empty: all that serve the problem
  uint64_t seed = 1;
};

// Returns the workload for the machine of the options.
Workload workload_of(const RunOptions& options);

// Adds a subcommand with these options; `template_help` explains --template there.
Command add_run_command(Command program, const std::string& name, const std::string& what,
                        const std::string& example, const std::string& template_help,
                        RunOptions* options);

}  // namespace attune::cli
