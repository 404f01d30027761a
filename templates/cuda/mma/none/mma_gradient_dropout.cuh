// SPDX-License-Identifier: Apache-2.0
// Gradients of kernels without dropout: all weights are kept.
#pragma once

#include "cuda/parts/none/dropout_source.cuh"

namespace none {

template <bool kKeysStay, int kM, int kN>
struct DroppedElements {
  template <class Parts, class Place>
  __device__ __forceinline__ DroppedElements(const Parts&, const Place&) {}
  template <class Elements>
  __device__ __forceinline__ void zero(Elements&) const {}
};

template <class Args, class Gradient>
__device__ __forceinline__ void scale_kept(Args, Gradient&) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
