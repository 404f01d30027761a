// SPDX-License-Identifier: Apache-2.0
// The keys of a problem's text form (parse_problem): one table for parsing, for errors and for the
// help of every command that takes --problem. Stands in problem_text.cpp.
#pragma once

#include <string>
#include <vector>

namespace attune {

struct ProblemKey {
  std::string name;      // "mask"
  std::string accepted;  // "none, causal_top_left, causal_bottom_right"
  std::string meaning;   // "causal masks name their alignment"
};

// In the order of the help.
const std::vector<ProblemKey>& problem_keys();

}  // namespace attune
