// SPDX-License-Identifier: Apache-2.0
// Finds the block sizes of a program that divides positions, as in seen[q_idx / 128][kv_idx / 128].
// Used for default configs, whose tiles should not straddle blocks, and for samples of such
// tensors.
#pragma once

#include <cstdint>

#include "generator/score/language/program.hpp"

namespace attune::score {

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
