// SPDX-License-Identifier: Apache-2.0
// `attune explain MODEL`: every problem of a model, by kind of layer, and on which rung it stands.
#pragma once

#include "runtime/engine.hpp"
#include "tuner/cli/workload_options.hpp"

namespace attune::cli {

// Returns the exit code.
int explain_model(const WorkloadOptions& options, const Engine& engine, bool json);

}  // namespace attune::cli
