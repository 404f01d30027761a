// SPDX-License-Identifier: Apache-2.0
// Two values that every online softmax shares. A hidden score is -inf. A row maximum begins at
// kLowestMax and never falls below it. kLowestMax is finite, so -inf - (-inf) cannot arise. A row
// that has seen no key has probabilities exp2(-inf + 2^120) = 0 and sum 0.
#pragma once

namespace attune {

constexpr float kLowestMax = -1.329227995784916e36f;  // -2^120

__device__ __forceinline__ float hidden_score() { return -__int_as_float(0x7f800000); }

}  // namespace attune
