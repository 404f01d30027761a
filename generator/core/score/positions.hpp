// SPDX-License-Identifier: Apache-2.0
// Ints of a program that go along with positions: how far they move from one key, or one row, to the next. A loop of steps computes
// them once a step (stepped.hpp).
#pragma once

#include <functional>
#include <optional>

#include "generator/core/score/dependence.hpp"
#include "generator/core/score/program.hpp"

namespace attune::score {

// Nodes by number, of a program or of what is still being built.
struct Nodes {
  std::function<const Node&(int)> node;
  std::function<Dependences(int)> depends;
};

// By how much an int grows from one q_idx (or kv_idx) to the next, where that is the same everywhere; 0 where it does not depend on it.
std::optional<int> step_along(const Nodes& nodes, int number, Name name);

// A sum of few positions, lengths and constants, each once: with positions below 2^28 it fits an int. It grows or falls by one from
// one key to the next, so as a float it is that of another key and a whole number, exact below 2^24.
bool is_position(const Nodes& nodes, int number);

}  // namespace attune::score
