// SPDX-License-Identifier: Apache-2.0
// Blocks that a program makes of rows and keys by dividing their positions, as masks that read a tensor of blocks do
// (seen[q_idx / 128][kv_idx / 128]). Used for defaults, whose tiles should not straddle them, and for samples of such tensors.
#pragma once

#include <cstdint>

#include "generator/core/score/program.hpp"

namespace attune::score {

// The largest rows and keys of which every block that a program makes is a multiple; 0 where it makes none.
struct Blocks {
  int64_t rows = 0;
  int64_t keys = 0;
};
Blocks blocks_of(const Program& program);

// What a node divides its first operand by, where that is a constant above 1, of ints that depend on positions; else 0.
int64_t divisor_of(const Program& program, int node);

}  // namespace attune::score
