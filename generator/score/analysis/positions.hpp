// SPDX-License-Identifier: Apache-2.0
// Finds ints that change by a constant from one key or row to the next. Kernels that process keys
// in steps compute them once per step (stepped.hpp).
#pragma once

#include <functional>
#include <optional>

#include "generator/score/analysis/dependence.hpp"
#include "generator/score/language/program.hpp"

namespace attune::score {

// The nodes of a program, by number. The program may still be under construction.
struct Nodes {
  std::function<const Node&(int)> node;
  std::function<Dependences(int)> depends;
};

// Returns the change of an int from one q_idx (or kv_idx) to the next, if it is the same
// everywhere. Returns 0 if the int does not depend on that name.
std::optional<int> step_along(const Nodes& nodes, int number, Name name);

// True for a sum of few positions, lengths and constants, each at most once. The sum fits an int if
// positions are below 2^28, and changes by one from key to key. So its float value is another key's
// float value plus an integer, exact below 2^24.
bool is_position(const Nodes& nodes, int number);

}  // namespace attune::score
