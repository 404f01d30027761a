// SPDX-License-Identifier: Apache-2.0
// See none/dropout.cuh.
#pragma once

#include "cuda/backward_sm90/none/dropout.cuh"

namespace none {

struct KeysDropout : GradientDropout {
  static constexpr int kRegisters = 0;
  using GradientDropout::GradientDropout;
  template <class S, class P>
  __device__ __forceinline__ static void redo(int, const S&, const S&, const float (&)[2], P&, P&) {
  }
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
