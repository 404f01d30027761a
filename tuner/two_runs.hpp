// SPDX-License-Identifier: Apache-2.0
// Two runs of one kernel on the same inputs, of problems that ask for the same bits in every run (Problem::deterministic). Used by
// DeviceBackend beside the oracle, which allows for rounding and looks at a part of large results.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tuner/inputs.hpp"

namespace attune {

// `launch` runs the kernel in a workspace whose bytes were all `stale` before it was prepared, and waits. Outputs hold that byte, too, but
// for those that are added to: these begin at 0. The second run finds another byte than the first. A sentence that names the first element
// whose bits differ, or nullopt. Of a large tensor the first 16 MB are compared: of each candidate of a search all would take longer than its timing.
std::optional<std::string> difference_of_two_runs(
    const Device& device, const Problem& problem, Inputs& inputs,
    const std::function<void(const Operands& operands, int stale)>& launch);

}  // namespace attune
