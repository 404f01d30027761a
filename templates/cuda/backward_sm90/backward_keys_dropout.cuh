// SPDX-License-Identifier: Apache-2.0
// Dropout in the kernels of dK and dV of backward_sm90. The workspace holds delta' = delta / scale.
// Then dV = scale (P keep)^T dout and dS = scale P (keep dP - delta'). The kernels multiply
// complete gradients by `scale`.
#pragma once

#include "cuda/backward_sm90/backward_layout.cuh"
#include "cuda/backward_sm90/scale_kept.cuh"
#include "cuda/parts/dropout_squares.cuh"
#include "cuda/ptx/convert.cuh"

namespace attune {

class KeysDropout {
 public:
  // Begins the steps of a head of Q. `first_key`: first key of the warpgroup.
  __device__ __forceinline__ void begin(const DropoutArgs* args, const AttentionArgs& base,
                                        int batch, int head, int first_key) {
    const int warp = reread_thread_index() % kWarpgroupThreads / 32;
    source_ = Squares::staying(DropoutSource(*args, dropout_head(base, batch, head)),
                               static_cast<unsigned>(first_key) / 16 + warp);
  }

  // Finds the elements of a block that dropout keeps. This work overlaps with the exponentials,
  // which leave the other units idle.
  __device__ __forceinline__ void make(int block) {
    squares_.make(source_, static_cast<unsigned>(block) * (kKeyBlockM / 16));
  }

  // Sets dropped elements of rounded P to zero.
  template <int kPairs>
  __device__ __forceinline__ void keep(unsigned (&p)[kPairs]) const {
#pragma unroll
    for (int i = 0; i < kPairs; i += 2) keep(i / 2, &p[i]);
  }

  // Sets dropped elements to zero in this thread's two words of a block of 8 queries.
  __device__ __forceinline__ void keep(int block8, unsigned* p) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) p[half] = squares_.keep(p[half], block8, half);
  }

  // Makes dS of this thread's four elements in a block of 8 queries: two keys by two queries.
  // `delta` has a value for each query.
  __device__ __forceinline__ void differentiate(int block8, const float* p, const float* dp,
                                                const float (&delta)[2], unsigned* ds) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float pair[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float kept = squares_.keeps(block8, half, i) ? dp[2 * half + i] : 0.f;
        pair[i] = p[2 * half + i] * (kept - delta[i]);
      }
      ds[half] = pack<kDtypeQ>(pair[0], pair[1]);
    }
  }

 private:
  using Squares = DropoutSquares<kKeyBlockM / 16, true>;

  DropoutSource source_;
  Squares squares_;
};

}  // namespace attune
