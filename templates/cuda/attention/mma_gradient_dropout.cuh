// SPDX-License-Identifier: Apache-2.0
// What dropout takes from a step of the mma.sync gradient kernels.
#pragma once

#include "cuda/attention/dropout_of_keys.cuh"
#include "cuda/attention/dropout_of_rows.cuh"
#include "cuda/attention/mma_gradient_stream.cuh"

namespace attune {

// Of a thread's elements of a step, the first of which is at `at`; kN blocks of 8 columns.
template <bool kKeysStay, int kM, int kN>
class DroppedElements {
 public:
  __device__ __forceinline__ DroppedElements(const GradientParts& parts,
                                             const ElementPlace<false>& at) {
    const DropoutSource source(parts.dropout);
    const unsigned head = dropout_head(parts.base, at.batch, at.head);
    const unsigned first_cell = static_cast<unsigned>(at.column) / 16;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const unsigned row = static_cast<unsigned>(at.stay + 16 * m);
      signs_[m].make(source, {{head, head}, {row, row + 8}}, first_cell);
    }
  }

  // Puts zeros where P is dropped.
  __device__ __forceinline__ void zero(float (&values)[kM][kN][4]) const {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!signs_[m].keeps(n, i / 2, i % 2)) values[m][n][i] = 0.f;
      }
    }
  }

 private:
  DropoutOfRows<kN / 2> signs_[kM];
};

template <int kM, int kN>
class DroppedElements<true, kM, kN> {
 public:
  __device__ __forceinline__ DroppedElements(const GradientParts& parts,
                                             const ElementPlace<true>& at) {
    const DropoutSource source(parts.dropout);
    const unsigned head = dropout_head(parts.base, at.batch, at.head);
    const unsigned first_row = static_cast<unsigned>(at.column) / 8 * 8;
#pragma unroll
    for (int m = 0; m < kM; ++m)
      signs_[m].make(source, head, first_row, static_cast<unsigned>(at.stay) / 16 + m);
  }

  __device__ __forceinline__ void zero(float (&values)[kM][kN][4]) const {
    const int lane = reread_thread_index() % 32;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const unsigned signs = signs_[m].of_block(n, lane);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (signs_[m].sign(signs, i) >> 31) values[m][n][i] = 0.f;
      }
    }
  }

 private:
  DropoutOfKeys<8 * kN> signs_[kM];
};

// Gradients are sums of products of kept places.
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
