// SPDX-License-Identifier: Apache-2.0
// A workload as the program shows it: the problems by kind of layer, with what is not supported
// there. Used by tune --dry-run, explain MODEL, and by every command's --json.
#pragma once

#include <functional>
#include <string>

#include "tuner/cli/output.hpp"
#include "tuner/workload.hpp"

namespace attune::cli {

// "bf16 d128 32/8 heads, 1 x 2048 causal", as tables have it.
std::string short_text(const Problem& problem);

// The whole set, one line a problem; `more`, if given, is what stands behind a problem.
std::string workload_text(const Workload& workload,
                          const std::function<std::string(const Problem&)>& more = {});

// {"notes": [...], "layer_kinds": [{"kind", "layers", "problems", "not_supported", "refused"}]}
Json workload_json(const Workload& workload);

}  // namespace attune::cli
