// SPDX-License-Identifier: Apache-2.0
// A kernel held against the oracle on inputs of the backend's, as the tuner checks candidates. Used by `attune check`.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tuner/device_backend.hpp"
#include "tuner/tune_target.hpp"

namespace attune::cli {

struct CheckedKernel {
  Problem problem;
  TuneCandidate candidate;
  Prepared result;
  std::string image_from;  // as in Plan; empty of candidates, which are compiled here
};

// At most `count` legal configs of the family, in a random order.
std::vector<TuneCandidate> sampled_configs(const Family& family, const Problem& problem,
                                           uint64_t seed, int count);

// The problem's inputs and oracle, then each candidate on them.
void check_candidates(const TuneTarget& target, DeviceBackend* backend, const Problem& problem,
                      const std::vector<TuneCandidate>& candidates, uint64_t seed,
                      std::vector<CheckedKernel>* rows);

// The same of the kernel that a call would run, wherever its image is from: `plan` is that of a program here.
void check_plan(const TuneTarget& target, DeviceBackend* backend, const Plan& plan, uint64_t seed,
                std::vector<CheckedKernel>* rows);

// The command that checks one kernel again; `options` stand behind "attune check", each with a blank ahead.
std::string check_command(const Device& device, const std::string& options,
                          const KernelTemplate& kernel_template, const Config& config,
                          const Problem& problem, uint64_t seed);

// "backward_cpu 3, backward_sm80 4"
std::string counts_text(const std::map<std::string, int>& counts);

// 0, or the exit code of what failed: 3 where a result is wrong.
int exit_code_of(const std::vector<CheckedKernel>& rows);

}  // namespace attune::cli
