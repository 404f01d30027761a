// SPDX-License-Identifier: Apache-2.0
// Random problems of the ops around a cache: attention over it, appends to it, and the choice of
// keys. `attune check --fuzz --op` draws from here. The same random numbers give the same problem.
#pragma once

#include <random>
#include <vector>

#include "generator/core/problem/problem.hpp"

namespace attune::testing {

// Returns the ops that random_op_problem() draws.
const std::vector<Op>& drawn_ops();
// Draws a valid problem of one of drawn_ops(), small enough for the float64 oracle. Few templates
// serve each: callers draw again.
Problem random_op_problem(std::mt19937_64& random, Op op);

}  // namespace attune::testing
