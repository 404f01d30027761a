// SPDX-License-Identifier: Apache-2.0
// Finds ints that move along with positions, and their step from one key, or row, to the next. A
// loop of steps computes them once a step (stepped.hpp).
#pragma once

#include <functional>
#include <optional>

#include "generator/core/score/dependence.hpp"
#include "generator/core/score/program.hpp"

namespace attune::score {

// Nodes by number, of a program or of one that is still being built.
struct Nodes {
  std::function<const Node&(int)> node;
  std::function<Dependences(int)> depends;
};

// Returns the growth of an int from one q_idx (or kv_idx) to the next, if it is the same
// everywhere; 0 if the int does not depend on it.
std::optional<int> step_along(const Nodes& nodes, int number, Name name);

// True for a sum of few positions, lengths and constants, each once. With positions below 2^28 it
// fits an int. It grows or falls by one from key to key. So as a float it is another key's value
// plus a whole number, exact below 2^24.
bool is_position(const Nodes& nodes, int number);

}  // namespace attune::score
