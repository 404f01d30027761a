// SPDX-License-Identifier: Apache-2.0
// How fast what a program gives moves with the score: its derivative, another program. Gradients of scores are multiplied by it.
#pragma once

#include "generator/core/score/program.hpp"

namespace attune::score {

// Of a score program. Loads, scalars and whole numbers do not move; at a kink it is the slope of one side, of abs at 0 it is 0. Where
// a score is hidden it is anything. Origins of captures and scalars are those of `program`. Throws kInvalidArgument where it has more than kMaxNodes nodes.
Program slope(const Program& program);
// Whether it is 1 whatever the score is: of programs that only add.
bool is_one(const Program& slope);

}  // namespace attune::score
