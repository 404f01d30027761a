// SPDX-License-Identifier: Apache-2.0
// Functions of dropout_source.cuh in kernels without dropout.
#pragma once

namespace none {

template <class Args>
__device__ __forceinline__ constexpr float dropout_scale(Args) {
  return 1.0f;
}

template <class Args>
__device__ __forceinline__ constexpr float kept_part(Args) {
  return 1.0f;
}

template <class Args>
__device__ __forceinline__ void leave_dropout_state(Args) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
