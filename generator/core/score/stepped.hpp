// SPDX-License-Identifier: Apache-2.0
// A program as a loop over steps of many keys takes it (step_printer.hpp): equal to it but for rounding, with less to do for an element.
//
// - `score` is q.k in the kernel's own unit, so score * unit (Name::kScoreUnit) is the score of the language. Where that costs nothing
//   the result is in that unit, too, so that a score is not multiplied at all: score - slope * distance is score - (slope / unit) *
//   distance.
// - A position that is made a float is made one before what is computed of it: float(abs(q_idx - kv_idx)) is abs(float(q_idx - kv_idx)).
#pragma once

#include "generator/core/score/program.hpp"

namespace attune::score {

struct SteppedProgram {
  Program program;
  bool keeps_units = false;  // the result is in units of `unit`
};

// Of a score program.
SteppedProgram stepped(const Program& program);

}  // namespace attune::score
