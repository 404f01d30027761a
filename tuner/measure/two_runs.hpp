// SPDX-License-Identifier: Apache-2.0
// Compares two runs of one kernel on the same inputs, for problems that need the same bits in every
// run (Problem::deterministic). DeviceBackend uses it in addition to the oracle, which allows for
// rounding and checks only a part of large results.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tuner/measure/inputs.hpp"

namespace attune {

// Returns a sentence that names the first element with different bits, or nullopt. `launch` fills
// the workspace with the byte `stale`, initialises it, runs the kernel, and waits. Outputs are
// filled with that byte too, except outputs that the kernel adds to: these begin at 0. The second
// run uses another byte. Only the first 16 MB of a large tensor are compared, because a full
// comparison for each candidate would take longer than its timing.
std::optional<std::string> difference_of_two_runs(
    const Device& device, const Problem& problem, Inputs& inputs,
    const std::function<void(const Operands& operands, int stale)>& launch);

}  // namespace attune
