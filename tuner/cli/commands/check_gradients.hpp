// SPDX-License-Identifier: Apache-2.0
// `attune check --fuzz N --training`: gradients of random problems against the float64 oracle.
#pragma once

#include <memory>

#include "runtime/engine/device.hpp"
#include "tuner/cli/workload_options.hpp"

namespace attune::cli {

// Draws `count` problems as --fuzz does, some with dropout, and checks their gradients against the
// oracle. Each check uses a random config of a random template (or of the named template). Prints a
// line for each failure, with the command that repeats this case alone. Prints counts at the end.
// Returns the exit code.
int check_random_gradients(int count, const RunOptions& run,
                           const std::shared_ptr<const Device>& device);

}  // namespace attune::cli
