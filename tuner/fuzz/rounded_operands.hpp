// SPDX-License-Identifier: Apache-2.0
// What kernels of fp32 operands see of them where they are asked for less than fp32 arithmetic. Used by the low-precision twin.
#pragma once

#include "tuner/fuzz/attention_case.hpp"

namespace attune::testing {

// A weight P as it meets V: of 16 bits, or of fp32 by the accuracy.
double round_weight(const Problem& problem, Arithmetic arithmetic, double value);

// The case with q, k and v so rounded; as it is where kernels take operands as they are.
AttentionCase with_rounded_operands(const AttentionCase& test_case, Arithmetic arithmetic);

}  // namespace attune::testing
