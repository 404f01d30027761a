// SPDX-License-Identifier: Apache-2.0
// How fast what a program gives moves with the score, or with what it reads of a tensor: its derivative, another program. Gradients of
// scores are multiplied by it.
#pragma once

#include <vector>

#include "generator/core/score/program.hpp"

namespace attune::score {

// Of a score program. Loads, scalars and whole numbers do not move; at a kink it is the slope of one side, of abs at 0 it is 0. Where
// a score is hidden it is anything. Origins of captures and scalars are those of `program`. Throws kInvalidArgument where it has more than kMaxNodes nodes.
Program slope(const Program& program);
// By what it reads at one of its loads, a node that loads floats: the others, of the same tensor too, do not move, nor do indices.
Program slope_of_load(const Program& program, int node);
// The nodes that load floats, in their order.
std::vector<int> float_loads(const Program& program);
// Whether it is 1 whatever the score is: of programs that only add.
bool is_one(const Program& slope);

}  // namespace attune::score
