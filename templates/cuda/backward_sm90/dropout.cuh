// SPDX-License-Identifier: Apache-2.0
// Dropout in the gradients on Hopper, except backward_sm90_band. The workspace holds
// delta' = delta / scale. Then
//   dV = scale (P keep)^T dout,  dS = scale P (keep dP - delta')
// The kernels multiply complete gradients by `scale`. Kernels without dropout: none/dropout.cuh.
#pragma once

#include "cuda/backward_sm90/layout.cuh"
#include "cuda/parts/dropout_squares.cuh"

namespace attune {

// Dropout of blocks of kStep columns of a warpgroup's accumulators. Rows stay, or keys do.
template <int kStep, bool kKeysStay>
class GradientDropout {
 public:
  __device__ __forceinline__ explicit GradientDropout(const DropoutArgs& args) : args_(args) {}

  // Finds the elements of a block that dropout keeps. This work overlaps with the exponentials,
  // which leave the other units idle.
  __device__ __forceinline__ void make(int block) {
    squares_.make(source_, static_cast<unsigned>(block) * (kStep / 16));
  }

  // Returns element i of dP, or 0 if it is dropped.
  __device__ __forceinline__ float kept(float dp, int i) const {
    return squares_.keeps(i / 4, i / 2 % 2, i % 2) ? dp : 0.f;
  }

  template <int kCount>
  __device__ __forceinline__ void scale_kept(float (&gradient)[kCount]) const {
#pragma unroll
    for (float& sum : gradient) sum *= args_.scale;
  }

 protected:
  using Squares = DropoutSquares<kStep / 16, kKeysStay>;

  const DropoutArgs& args_;
  DropoutSource source_;
  Squares squares_;
};

}  // namespace attune
