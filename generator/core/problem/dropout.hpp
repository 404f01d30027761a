// SPDX-License-Identifier: Apache-2.0
// Makes the dropout argument of kernels (templates/shared/dropout_args.h).
#pragma once

#include <algorithm>
#include <cmath>

#include "generator/core/problem/problem.hpp"
#include "templates/shared/dropout_args.h"

namespace attune {

// Returns the argument from the call's values (null: seed and offset 0) and the problem's dropout.
inline DropoutArgs dropout_args(const Problem& problem, const DropoutArgs* given) {
  DropoutArgs args = given == nullptr ? DropoutArgs{} : *given;
  args.keep(std::clamp(static_cast<unsigned>(std::lround(256 * (1 - problem.dropout))), 1U, 256U));
  return args;
}

}  // namespace attune
