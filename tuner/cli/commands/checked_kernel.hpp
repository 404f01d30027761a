// SPDX-License-Identifier: Apache-2.0
// Checks a kernel against the oracle on the backend's inputs, as the tuner checks candidates. Used
// by `attune check`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/engine/device.hpp"
#include "tuner/cli/workload_options.hpp"
#include "tuner/measure/device_backend.hpp"
#include "tuner/search/tune_target.hpp"

namespace attune::cli {

struct CheckedKernel {
  Problem problem;
  TuneCandidate candidate;
  Prepared result;
  std::string image_from;  // as in Plan; empty for candidates, which are compiled here
};

// Returns at most `count` legal configs of the family, in random order.
std::vector<TuneCandidate> sampled_configs(const Family& family, const Problem& problem,
                                           uint64_t seed, int count);

// Makes the problem's inputs and oracle, then checks each candidate on them.
void check_candidates(const TuneTarget& target, DeviceBackend* backend, const Problem& problem,
                      const std::vector<TuneCandidate>& candidates, uint64_t seed,
                      std::vector<CheckedKernel>* rows);

// Checks the kernel that a call would run here (`plan`), wherever its image comes from.
void check_plan(const TuneTarget& target, DeviceBackend* backend, const Plan& plan, uint64_t seed,
                std::vector<CheckedKernel>* rows);

// Returns the command that checks one kernel again. `options` follow "attune check", each after a
// space.
std::string check_command(const Device& device, const std::string& options,
                          const KernelTemplate& kernel_template, const Config& config,
                          const Problem& problem, uint64_t seed);

// Returns a text such as "backward_cpu 3, backward_sm80 4".
std::string counts_text(const std::map<std::string, int>& counts);

// Returns 0, or the exit code of the failure: 3 if a result is wrong.
int exit_code_of(const std::vector<CheckedKernel>& rows);

// `attune check --fuzz N`: random kernels and operands against the float64 oracle.

struct FuzzOptions {
  int count = 0;       // number of kernels; with problems, number of cases for each
  std::string config;  // for the problems' kernels: knobs that differ from the default
};

// Prints a line for each failure, with the command that repeats this case alone. Prints counts at
// the end. Returns the exit code.
int check_fuzz(const FuzzOptions& options, const RunOptions& run,
               const std::shared_ptr<const Device>& device);

// `attune check --fuzz N --op OP` and `--training`: random problems of other ops.

// Draws problems; those that no template serves are left out.
using DrawProblems = std::function<std::vector<Problem>(uint64_t seed, std::mt19937_64* random)>;

// For each of `count` seeds, draws problems until a template (or the named one) serves some. Checks
// each with a random config of a random template against the oracle. Prints a line for each
// failure, with the command that repeats this case alone. Prints counts of `what` at the end.
// Returns the exit code.
int check_drawn(int count, const RunOptions& run, const std::shared_ptr<const Device>& device,
                const TuneTarget& target, const std::string& what, const DrawProblems& draw);
// Draws problems of an op of testing::drawn_ops().
int check_random_op(Op op, int count, const RunOptions& run,
                    const std::shared_ptr<const Device>& device);
// Draws problems as --fuzz does, some with dropout, and checks their gradients.
int check_random_gradients(int count, const RunOptions& run,
                           const std::shared_ptr<const Device>& device);

}  // namespace attune::cli
