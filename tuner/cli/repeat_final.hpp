// SPDX-License-Identifier: Apache-2.0
// What `attune tune --verify N` says: finals repeated in fresh processes (verify_winners of
// tune_loop.hpp), as JSON and text.
#pragma once

#include <string>
#include <vector>

#include "tuner/cli/output.hpp"
#include "tuner/tune_loop.hpp"

namespace attune::cli {

Json repeats_json(const std::vector<WinnerCheck>& checks);
std::string repeats_text(const std::vector<WinnerCheck>& checks);

}  // namespace attune::cli
