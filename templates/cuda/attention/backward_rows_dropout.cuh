// SPDX-License-Identifier: Apache-2.0
// Dropout in the kernel of dQ of backward_sm90. With delta' = delta / scale, which stands in the workspace, dS = scale P (keep dP -
// delta'); dQ is multiplied by `scale` at its end.
#pragma once

#include "cuda/attention/backward_layout.cuh"
#include "cuda/attention/dropout_ring.cuh"
#include "cuda/attention/scale_kept.cuh"
#include "cuda/ptx/convert.cuh"

namespace attune {

constexpr int kRowsMakers = 3;  // warps
using RowsDropoutRing = DropoutRing<kBlockM, kBlockN, false>;

__device__ __forceinline__ RowsDropoutRing rows_dropout_ring(unsigned shared) {
  return RowsDropoutRing(shared + dropout_ring_offset(kRowsLayout.bytes));
}

// In a consumer.
class RowsDropout {
 public:
  __device__ __forceinline__ RowsDropout(const DropoutArgs& args, unsigned shared, int warpgroup)
      : args_(args), ring_(rows_dropout_ring(shared)), warpgroup_(warpgroup) {}

  // Delta that this kernel made becomes that of the workspace.
  __device__ __forceinline__ void take_part(float (&delta)[2]) const {
    if constexpr (!kFoldSums) return;
    for (float& of_row : delta) of_row *= kept_part(args_);
  }

  // Of the step to come.
  __device__ __forceinline__ void take() {
    const int thread = reread_thread_index() % kWarpgroupThreads;
    ring_.take(warpgroup_ * (kWarpgroupThreads / 32) + thread / 32, &squares_);
  }
  __device__ __forceinline__ void skip(int steps) {
#pragma unroll 1
    for (int i = 0; i < steps; ++i) ring_.skip();
  }

  // dS of a step.
  __device__ __forceinline__ void differentiate(const float (&p)[kBlockN / 2],
                                                const float (&dp)[kBlockN / 2],
                                                const float (&delta)[2],
                                                unsigned (&ds)[kBlockN / 4]) const {
#pragma unroll
    for (int i = 0; i < kBlockN / 4; ++i) {
      float pair[2];
#pragma unroll
      for (int key = 0; key < 2; ++key) {
        const float kept = squares_.keeps(i / 2, i % 2, key) ? dp[2 * i + key] : 0.f;
        pair[key] = p[2 * i + key] * (kept - delta[i % 2]);
      }
      ds[i] = pack<kDtypeQ>(pair[0], pair[1]);
    }
  }

 private:
  const DropoutArgs& args_;
  RowsDropoutRing ring_;
  int warpgroup_;
  RowsDropoutRing::Squares squares_;
};

}  // namespace attune
