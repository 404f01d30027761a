// SPDX-License-Identifier: Apache-2.0
// The derivative of a program by the score, or by a value that it loads: another program. Gradients
// of scores are multiplied by it.
#pragma once

#include <vector>

#include "generator/core/score/program.hpp"

namespace attune::score {

// Returns the derivative of a score program by the score. Loads, scalars and integers are
// constants. At a kink it is the slope of one side; for abs at 0 it is 0. For a hidden score it may
// be anything. Origins of captures and scalars are those of `program`. Throws kInvalidArgument if
// it has more than kMaxNodes nodes.
Program slope(const Program& program);
// Returns the derivative by the value of one load, a node that loads floats. Other loads, also of
// the same tensor, and indices are constants.
Program slope_of_load(const Program& program, int node);
// Returns the nodes that load floats, in their order.
std::vector<int> float_loads(const Program& program);
// True if it is 1 for every score: the program only adds.
bool is_one(const Program& slope);

}  // namespace attune::score
