// SPDX-License-Identifier: Apache-2.0
// Applies dropout in a step of the mma.sync gradient kernels.
#pragma once

#include "cuda/mma/mma_gradient_stream.cuh"
#include "cuda/parts/dropout_squares.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

// Drops elements of a step. The thread's part of the step begins at `at` and has kN blocks of 8
// columns.
template <bool kKeysStay, int kM, int kN>
class DroppedElements {
 public:
  __device__ __forceinline__ DroppedElements(const GradientParts& parts,
                                             const ElementPlace<kKeysStay>& at) {
    const unsigned head = made_here(dropout_head(parts.base, at.batch, at.head));
    const DropoutSource source(parts.dropout, head);
    const unsigned stay = static_cast<unsigned>(at.stay) / 16;
    const unsigned column = static_cast<unsigned>(at.column) / 16;
    const unsigned lane = reread_thread_index() % 32;  // read again to save registers
#pragma unroll
    for (int m = 0; m < kM; ++m)
      squares_[m].make(Squares::staying(source, stay + m, lane), column, Squares::own(lane));
  }

  // Sets the values to zero where P is dropped.
  __device__ __forceinline__ void zero(float (&values)[kM][kN][4]) const {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!squares_[m].keeps(n, i / 2, i % 2)) values[m][n][i] = 0.f;
      }
    }
  }

 private:
  using Squares = DropoutSquares<kN / 2, kKeysStay>;

  Squares squares_[kM];
};

// Multiplies a gradient, a sum over kept elements, by the dropout scale.
template <int kM, int kTiles>
__device__ __forceinline__ void scale_kept(const DropoutArgs& dropout,
                                           float (&gradient)[kM][kTiles][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) gradient[m][n][i] *= dropout.scale;
    }
  }
}

}  // namespace attune
