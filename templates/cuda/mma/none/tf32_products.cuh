// SPDX-License-Identifier: Apache-2.0
// Operands of 8 and 16 bits, whose products are exact: the steps that only tf32 products need
// (operands_32bit.cuh) do nothing.
#pragma once

namespace none {

template <class Scores>
struct ScoreParts {
  __device__ __forceinline__ void take(Scores&, int) {}
};

template <class Copy, class Tile>
__device__ __forceinline__ void make_q_near(const Copy&, const Tile&, unsigned) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
