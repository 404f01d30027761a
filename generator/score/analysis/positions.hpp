// SPDX-License-Identifier: Apache-2.0
// Finds ints that change by a constant from one key or row to the next. Kernels that process keys
// in steps compute them once per step (rewrites.hpp).
#pragma once

#include <cstdint>
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

// Finds programs that only add to a score a function of the head and of kv_idx - q_idx, as relative
// bias and ALiBi do. A tile has few such values.

// True if a score program is the score, once, plus terms that do not depend on it. The terms may
// depend on q_idx and kv_idx only by their difference.
bool is_score_and_diagonals(const Program& program);

// Finds the block sizes of a program that divides positions, as in seen[q_idx / 128][kv_idx / 128].
// Used for default configs, whose tiles should not straddle blocks, and for samples of such
// tensors.

// The largest numbers of rows and keys that divide every block of a program; 0 if it has no blocks.
struct Blocks {
  int64_t rows = 0;
  int64_t keys = 0;
};
Blocks blocks_of(const Program& program);

// Returns the divisor of a node if it is a constant above 1 and the dividend is an int that depends
// on positions. Returns 0 otherwise.
int64_t divisor_of(const Program& program, int node);

}  // namespace attune::score
