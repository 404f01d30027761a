// SPDX-License-Identifier: Apache-2.0
// Makes the dropout argument of kernels (templates/shared/dropout_args.h).
#pragma once

#include "generator/core/problem/problem.hpp"
#include "templates/shared/dropout_args.h"

namespace attune {

// Returns the argument from the call's values (null: seed and offset 0) and the problem's dropout.
DropoutArgs dropout_args(const Problem& problem, const DropoutArgs* given);

}  // namespace attune
