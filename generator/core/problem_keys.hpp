// SPDX-License-Identifier: Apache-2.0
// The keys of a problem's text form (parse_problem): one table for parsing, for errors and for the
// help of every command that takes --problem. Stands in problem_text.cpp.
#pragma once

#include <string>
#include <vector>

namespace attune {

struct KernelSpec;

struct ProblemKey {
  std::string name;      // "mask"
  std::string accepted;  // "none, causal_top_left, causal_bottom_right"
  std::string meaning;   // "causal masks name their alignment"
};

// In the order of the help.
const std::vector<ProblemKey>& problem_keys();

// A spec in these keys, for people: "dtype=bf16,head_dim=128,heads=4/1,mask=none". It has no lengths,
// and its heads are the ratio.
std::string to_problem_text(const KernelSpec& spec);

}  // namespace attune
