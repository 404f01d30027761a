// SPDX-License-Identifier: Apache-2.0
// Rewrites programs: derivatives, by which kernels multiply gradients of scores, and programs for a
// loop over steps of many keys.
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

// Rewrites a program for a loop over steps of many keys (step_printer.hpp). The result is equal
// except for rounding, and costs less per element.
//
// - `score` is q.k in the kernel's own unit, so score * unit (Name::kScoreUnit) is the score of the
//   language. If it adds no cost, the result is in that unit too, and no score is multiplied.
//   Example: score - slope * distance becomes score - (slope / unit) * distance.
// - Conversion to float moves inside: float(abs(q_idx - kv_idx)) becomes abs(float(q_idx -
//   kv_idx)).

struct SteppedProgram {
  Program program;
  bool keeps_units = false;  // the result is in units of `unit`
};

// Rewrites a score program.
SteppedProgram stepped(const Program& program);

}  // namespace attune::score
