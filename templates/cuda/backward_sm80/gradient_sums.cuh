// SPDX-License-Identifier: Apache-2.0
// Ends tiles of backward_sm80 by adding gradients to fp32 sums that the output tensors already
// hold. Each thread adds the elements of its accumulators.
#pragma once

#include "cuda/mma/mma_gradient_stream.cuh"

namespace attune {

// Adds a thread's gradient to the sums. `at` is its first element. The thread has the rows 16 m and
// 16 m + 8 further down, and the columns 8 n and 8 n + 1 further on.
template <bool kKeysStay, int kM, int kTiles>
__device__ __forceinline__ void add_gradient(const AttentionArgs& args, const OperandView& to,
                                             const ElementPlace<kKeysStay>& at, float factor,
                                             const float (&gradient)[kM][kTiles][4]) {
  const int rows = kKeysStay ? args.seqlen_kv : args.seqlen_q;
  float* const base = static_cast<float*>(to.data) + at.batch * to.batch_stride +
                      at.head * to.head_stride + at.column;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.stay + 16 * m + 8 * half;
      if (row >= rows) continue;
      float* const sums = base + row * to.row_stride;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        sums[8 * n] += factor * gradient[m][n][2 * half];
        sums[8 * n + 1] += factor * gradient[m][n][2 * half + 1];
      }
    }
  }
}

}  // namespace attune
