// SPDX-License-Identifier: Apache-2.0
// See dropout.hpp.
#include "generator/core/problem/dropout.hpp"

#include <algorithm>
#include <cmath>

namespace attune {

DropoutArgs dropout_args(const Problem& problem, const DropoutArgs* given) {
  DropoutArgs args = given == nullptr ? DropoutArgs{} : *given;
  args.keep(std::clamp(static_cast<unsigned>(std::lround(256 * (1 - problem.dropout))), 1U, 256U));
  return args;
}

}  // namespace attune
