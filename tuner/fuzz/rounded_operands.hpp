// SPDX-License-Identifier: Apache-2.0
// The values of fp32 operands in kernels that use less than fp32 arithmetic. Used by the
// low-precision twin.
#pragma once

#include "tuner/fuzz/attention_case.hpp"

namespace attune::testing {

// Rounds a weight P as kernels do before they multiply V: to 16 bits, or for fp32 by the accuracy.
double round_weight(const Problem& problem, Arithmetic arithmetic, double value);

// Returns the case with q, k and v rounded as kernels round them; unchanged if kernels use the
// operands unrounded.
AttentionCase with_rounded_operands(const AttentionCase& test_case, Arithmetic arithmetic);

}  // namespace attune::testing
