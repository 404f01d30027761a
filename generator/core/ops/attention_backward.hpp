// SPDX-License-Identifier: Apache-2.0
// The op attention_backward: gradients of attention's q, k and v. A problem asks for any of them.
#pragma once

#include <vector>

#include "generator/core/op.hpp"

namespace attune {

const OpDescription& attention_backward_op();

// Returns the problems that training needs besides a problem of op prefill. They are the gradients
// of q, k and v, and those of learnt inputs: bias, table of distances, sinks. For a forward with
// 8-bit operands they use the 16-bit type of its o. Empty for other ops.
std::vector<Problem> gradient_problems(const Problem& forward);

}  // namespace attune
