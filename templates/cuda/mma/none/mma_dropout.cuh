// SPDX-License-Identifier: Apache-2.0
// Prefill kernels without dropout: all weights are kept.
#pragma once

#include "cuda/parts/none/dropout_source.cuh"

namespace none {

struct PrefillDropout {
  template <class Parts, class State>
  __device__ __forceinline__ void make(const Parts&, const State&, int) {}
  __device__ __forceinline__ void keep(unsigned (&)[4], int, int) const {}
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
