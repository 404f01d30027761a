// SPDX-License-Identifier: Apache-2.0
// Rewrites a program for a loop over steps of many keys (step_printer.hpp). The result is equal
// except for rounding, and costs less per element.
//
// - `score` is q.k in the kernel's own unit, so score * unit (Name::kScoreUnit) is the score of the
//   language. If it adds no cost, the result is in that unit too, and no score is multiplied.
//   Example: score - slope * distance becomes score - (slope / unit) * distance.
// - Conversion to float moves inside: float(abs(q_idx - kv_idx)) becomes abs(float(q_idx -
//   kv_idx)).
#pragma once

#include "generator/score/language/program.hpp"

namespace attune::score {

struct SteppedProgram {
  Program program;
  bool keeps_units = false;  // the result is in units of `unit`
};

// Rewrites a score program.
SteppedProgram stepped(const Program& program);

}  // namespace attune::score
