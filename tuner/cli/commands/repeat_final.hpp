// SPDX-License-Identifier: Apache-2.0
// The output of `attune tune --verify N`, as JSON and text: final races repeated in fresh processes
// (verify_winners in tune_loop.hpp).
#pragma once

#include <string>
#include <vector>

#include "tuner/cli/output/output.hpp"
#include "tuner/search/tune_loop.hpp"

namespace attune::cli {

Json repeats_json(const std::vector<WinnerCheck>& checks);
std::string repeats_text(const std::vector<WinnerCheck>& checks);

}  // namespace attune::cli
