// SPDX-License-Identifier: Apache-2.0
// Dropout in the kernels of dK and dV of backward_sm90. With delta' = delta / scale, which stands in the workspace, dV = scale (P
// keep)^T dout and dS = scale P (keep dP - delta'); gradients are multiplied by `scale` at their end.
#pragma once

#include "cuda/attention/backward_layout.cuh"
#include "cuda/attention/dropout_ring.cuh"
#include "cuda/attention/scale_kept.cuh"
#include "cuda/ptx/convert.cuh"

namespace attune {

constexpr int kKeysMakers = 2;  // warps, behind those that load
using KeysDropoutRing = DropoutRing<kKeyBlockN, kKeyBlockM, true>;

// `bytes`: of all that stands ahead of it.
__device__ __forceinline__ KeysDropoutRing keys_dropout_ring(unsigned shared, int bytes) {
  return KeysDropoutRing(shared + dropout_ring_offset(bytes));
}

// In a consumer.
class KeysDropout {
 public:
  __device__ __forceinline__ KeysDropout(const KeysDropoutRing& ring, int warpgroup)
      : ring_(ring), warpgroup_(warpgroup) {}

  // Of the step to come.
  __device__ __forceinline__ void take() {
    const int thread = reread_thread_index() % kWarpgroupThreads;
    ring_.take(warpgroup_ * (kWarpgroupThreads / 32) + thread / 32, &squares_);
  }
  __device__ __forceinline__ void skip(int steps) {
#pragma unroll 1
    for (int i = 0; i < steps; ++i) ring_.skip();
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
  KeysDropoutRing ring_;
  int warpgroup_;
  KeysDropoutRing::Squares squares_;
};

}  // namespace attune
