// SPDX-License-Identifier: Apache-2.0
// Differentiates a program by the score, or by a value that it loads. The result is another
// program, by which kernels multiply gradients of scores.
#pragma once

#include <vector>

#include "generator/score/language/program.hpp"

namespace attune::score {

// Returns the derivative of a score program by the score. Loads, scalars and integers are
// constants. At a kink, returns the slope of one side; for abs at 0, returns 0. For a hidden score,
// any value may result. Origins of captures and scalars are those of `program`. Throws
// kInvalidArgument if the derivative has more than kMaxNodes nodes.
Program slope(const Program& program);
// Returns the derivative by the value of one load, a node that loads floats. All other loads, also
// of the same tensor, and indices are constants.
Program slope_of_load(const Program& program, int node);
// Returns the nodes that load floats, in their order.
std::vector<int> float_loads(const Program& program);
// True if the slope is 1 for every score, so that the program only adds.
bool is_one(const Program& slope);

}  // namespace attune::score
