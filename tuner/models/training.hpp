// SPDX-License-Identifier: Apache-2.0
// Adds training to a workload: gradients, and dropout in the forward pass if it is not 0. Used by
// the option --training of the program.
#pragma once

#include "tuner/models/workload.hpp"

namespace attune {

struct Training {
  // for problems with gradients and their gradient problems; not for 8-bit operands
  float dropout = 0;
  bool deterministic = false;  // gradients have the same bits in every run
};

// Adds gradient problems after each problem that has gradients (gradient_problems in
// generator/core/ops/ops.hpp). Throws kInvalidArgument if no problem has gradients,
// for a dropout that no problem takes, and for a problem that validate() refuses.
void add_training(const Training& training, Workload* workload);

}  // namespace attune
