// SPDX-License-Identifier: Apache-2.0
// The result that fp32 code may give for a score program at one point: the float64 value, and how
// far rounding can lead from it. Used to judge kernels' results.
#pragma once

#include "generator/score/language/evaluate.hpp"

namespace attune::score {

struct Bound {
  double value = 0;
  double error = 0;
  // False if a comparison, floor or conversion is too close to call, or a number is too large for
  // fp32.
  bool is_certain = true;
};

// Returns the bound. Each operation adds a relative error of 1e-6 (and the error that the tables in
// score_functions.cuh and .hpp allow for functions) to its operands' errors. `tanh_error` is an
// additional relative error of tanh.
Bound bound_of(const Program& program, const Point& point, const Loads& loads,
               double tanh_error = 0);

}  // namespace attune::score
