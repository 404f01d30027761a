// SPDX-License-Identifier: Apache-2.0
// What kernels are told of a problem's dropout (templates/shared/dropout_args.h).
#pragma once

#include "generator/core/problem.hpp"
#include "templates/shared/dropout_args.h"

namespace attune {

// What a call gives (null: seed and offset 0), and what follows from the problem's dropout.
DropoutArgs dropout_args(const Problem& problem, const DropoutArgs* given);

}  // namespace attune
