// SPDX-License-Identifier: Apache-2.0
// The op attention_backward: gradients of attention's q, k and v, of which a problem asks any.
#pragma once

#include <vector>

#include "generator/core/op.hpp"

namespace attune {

const OpDescription& attention_backward_op();

// What training asks beside a problem of op prefill: gradients of q, k and v, and those of a bias, a table of distances and sinks that
// it has, which models learn. Of a forward with 8-bit operands in the 16 bits of its o. Empty of other ops.
std::vector<Problem> gradient_problems(const Problem& forward);

}  // namespace attune
