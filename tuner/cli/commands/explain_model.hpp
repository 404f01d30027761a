// SPDX-License-Identifier: Apache-2.0
// `attune explain MODEL`: lists each problem of a model, by kind of layer, with its rung.
#pragma once

#include "runtime/engine/engine.hpp"
#include "tuner/cli/workload_options.hpp"

namespace attune::cli {

// Prints the list, as JSON if `json` is set. Returns the exit code.
int explain_model(const WorkloadOptions& options, const Engine& engine, bool json);

}  // namespace attune::cli
