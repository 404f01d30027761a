// SPDX-License-Identifier: Apache-2.0
// Dropout in the kernels of dK and dV of backward_sm90. With delta' = delta / scale, which stands in the workspace, dV = scale (P
// keep)^T dout and dS = scale P (keep dP - delta'); gradients are multiplied by `scale` at their end. From the exponential on what of P
// is dropped has a sign, so that no other register has to know of it until dP is there.
#pragma once

#include "cuda/attention/backward_layout.cuh"
#include "cuda/attention/dropout_of_keys.cuh"
#include "cuda/attention/scale_kept.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/pack_positive.cuh"

namespace attune {

// To 16 bits, with zeros for what has a sign.
template <int kCount>
__device__ __forceinline__ void round_kept(const float (&p)[kCount], unsigned (&kept)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) kept[i] = pack_positive<kDtypeQ>(p[2 * i], p[2 * i + 1]);
}

// dS of two queries of a key; `p` has signs.
__device__ __forceinline__ unsigned differentiate_kept(const float* p, const float* dp,
                                                       const float (&delta)[2]) {
  return pack<kDtypeQ>(fmaxf(p[0], 0.f) * dp[0] - fabsf(p[0]) * delta[0],
                       fmaxf(p[1], 0.f) * dp[1] - fabsf(p[1]) * delta[1]);
}

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
    signs_.make(DropoutSource(*args_), head_, static_cast<unsigned>(block) * kKeyBlockM,
                static_cast<unsigned>(first_key_) / 16 + warp);
  }

  // Of the four elements of a block of 8 queries.
  __device__ __forceinline__ void sign(int block8, int lane, float* p) const {
    const unsigned signs = signs_.of_block(block8, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      p[i] = __uint_as_float(__float_as_uint(p[i]) | (signs_.sign(signs, i) & 0x80000000u));
  }

 private:
  const DropoutArgs* args_ = nullptr;
  unsigned head_ = 0;
  int first_key_ = 0;
  DropoutOfKeys<kKeyBlockM> signs_;
};

}  // namespace attune
