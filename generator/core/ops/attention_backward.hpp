// SPDX-License-Identifier: Apache-2.0
// The op attention_backward computes gradients of attention's q, k and v, or of a score input.
#pragma once

#include <vector>

#include "generator/core/problem/op.hpp"

namespace attune {

// Returns the problems that training needs in addition to a problem of op prefill: gradients of q,
// k and v, and of learnt inputs (bias, table of distances, sinks). For a forward pass with 8-bit
// operands they use the 16-bit type of its o. Returns none for other ops.
std::vector<Problem> gradient_problems(const Problem& forward);

}  // namespace attune
