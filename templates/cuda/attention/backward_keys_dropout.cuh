// SPDX-License-Identifier: Apache-2.0
// Dropout in the kernels of dK and dV of backward_sm90. With delta' = delta / scale, which stands in the workspace, dV = scale (P
// keep)^T dout and dS = scale P (keep dP - delta'); gradients are multiplied by `scale` at their end.
#pragma once

#include "cuda/attention/backward_layout.cuh"
#include "cuda/attention/dropout_squares.cuh"
#include "cuda/attention/scale_kept.cuh"
#include "cuda/ptx/convert.cuh"

namespace attune {

class KeysDropout {
 public:
  // `head`: of Q; `first_key`: of the warpgroup. `args` stay there.
  __device__ __forceinline__ void begin(const DropoutArgs* args, const AttentionArgs& base,
                                        int batch, int head, int first_key) {
    args_ = args;
    head_ = dropout_head(base, batch, head);
    first_key_ = first_key;
  }

  __device__ __forceinline__ void make(int block) {
    const int warp = reread_thread_index() % kWarpgroupThreads / 32;
    squares_.make(DropoutSource(*args_),
                  {head_, static_cast<unsigned>(block) * (kKeyBlockM / 16),
                   static_cast<unsigned>(first_key_) / 16 + warp});
  }

  // Puts zeros where P, rounded, is dropped.
  template <int kPairs>
  __device__ __forceinline__ void keep(unsigned (&p)[kPairs]) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) p[i] = squares_.keep(p[i], i / 2, i % 2);
  }

  // dS of the four elements of a block of 8 queries, of which each pair has the same delta.
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
  const DropoutArgs* args_ = nullptr;
  unsigned head_ = 0;
  int first_key_ = 0;
  DropoutSquares<kKeyBlockM / 16, true> squares_;
};

}  // namespace attune
