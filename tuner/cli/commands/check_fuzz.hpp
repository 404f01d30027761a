// SPDX-License-Identifier: Apache-2.0
// `attune check --fuzz N`: random kernels and operands against the float64 oracle.
#pragma once

#include <memory>
#include <string>

#include "runtime/engine/device.hpp"
#include "tuner/cli/workload_options.hpp"

namespace attune::cli {

struct FuzzOptions {
  int count = 0;       // number of kernels; with problems, number of cases for each
  std::string config;  // for the problems' kernels: knobs that differ from the default
};

// Prints a line for each failure, with the command that repeats this case alone. Prints counts at
// the end. Returns the exit code.
int check_fuzz(const FuzzOptions& options, const RunOptions& run,
               const std::shared_ptr<const Device>& device);

}  // namespace attune::cli
