// SPDX-License-Identifier: Apache-2.0
// What fp32 code may make of a score program at one point: the float64 value and how far from it rounding can lead. Kernels' results
// are judged by it.
#pragma once

#include "generator/core/score/evaluate.hpp"

namespace attune::score {

struct Bound {
  double value = 0;
  double error = 0;
  bool is_certain =
      true;  // false: a comparison, floor or conversion is too close to call, or a number too large for fp32
};

// Each operation adds a relative error of 1e-6 (and what the tables in score_functions.cuh and .hpp allow functions beyond that) to what
// its operands' errors come to.
// `tanh_error`: a relative error of tanh beyond that.
Bound bound_of(const Program& program, const Point& point, const Loads& loads,
               double tanh_error = 0);

}  // namespace attune::score
