// SPDX-License-Identifier: Apache-2.0
// A workload as the program shows it: the problems by kind of layer, with unsupported features.
// Used by tune --dry-run, explain MODEL, and by every command's --json.
#pragma once

#include <functional>
#include <string>

#include "tuner/cli/output/output.hpp"
#include "tuner/models/workload.hpp"

namespace attune::cli {

// Returns "bf16 d128 32/8 heads, 1 x 2048 causal", for tables.
std::string short_text(const Problem& problem);

// Returns the whole set, one line a problem. `more`, if given, adds text after a problem.
std::string workload_text(const Workload& workload,
                          const std::function<std::string(const Problem&)>& more = {});

// Returns {"notes": [...], "layer_kinds": [{"kind", "layers", "problems", "not_supported",
// "refused"}]}.
Json workload_json(const Workload& workload);

}  // namespace attune::cli
