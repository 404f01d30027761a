// SPDX-License-Identifier: Apache-2.0
// Prefill kernels without a mask program: it hides nothing.
#pragma once

#include "cuda/mma/none/block_walk.cuh"

namespace none {

template <class Parts, class State, class Scores>
__device__ __forceinline__ void hide_scores(const Parts&, const State&, int, Scores&) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
