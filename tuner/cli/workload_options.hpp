// SPDX-License-Identifier: Apache-2.0
// Which problems a command works on: a model's config.json, --problem, or --captured; with
// --seqlen, --batch and --dtype lists. Used by tune, bench, check and compile.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "generator/core/arch.hpp"
#include "generator/core/problem.hpp"

namespace attune::cli {

struct WorkloadOptions {
  std::string model;                     // path of a Hugging Face config.json
  std::vector<std::string> problems;     // texts
  std::string captured;                  // path of JSON lines
  std::string seqlens, batches, dtypes;  // lists as given
};

// Positional MODEL, --problem, --captured, --seqlen, --batch, --dtype.
void add_workload_options(CLI::App* command, WorkloadOptions* options);

// All of them, each once, in the order given; `target` decides a model's default lengths. Throws
// kInvalidArgument for bad or missing input, kIo for an unreadable file. Notes of the model's
// config that do not change a problem (a softcap, say) go to stderr.
std::vector<Problem> problems_of(const WorkloadOptions& options, Target target);

// For tables: "bf16 d128 32/8 heads, 1 x 2048 causal".
std::string short_text(const Problem& problem);

}  // namespace attune::cli
