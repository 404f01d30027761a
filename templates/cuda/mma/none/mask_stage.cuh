// SPDX-License-Identifier: Apache-2.0
// Kernels without a mask program: it hides nothing.
#pragma once

namespace none {

template <class Parts, class State, class Scores>
__device__ __forceinline__ void hide_scores(const Parts&, const State&, int, Scores&) {}

template <int kM, int kN>
struct SeenElements {
  template <class Parts, class Place>
  __device__ __forceinline__ bool look(const Parts&, const Place&) {
    return true;
  }
  template <bool kHasDp, class Elements>
  __device__ __forceinline__ void hide(Elements&, Elements&) const {}
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
