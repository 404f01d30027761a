// SPDX-License-Identifier: Apache-2.0
// Dropout in prefill_sm90: what a step keeps comes to its consumers through a ring; the probabilities lose the rest as they are rounded,
// and O is multiplied by 256 / threshold at its end. Row sums and LSE are those of all probabilities.
#pragma once

#include "cuda/attention/dropout_ring.cuh"
#include "cuda/attention/epilogue_rows.cuh"
#include "cuda/attention/kernel_parts.cuh"
#include "cuda/attention/sm90_layout.cuh"
#include "cuda/attention/tile_rows.cuh"

namespace attune {

using PrefillDropoutRing = DropoutRing<kBlockM, kBlockN, false, kHeadRows>;

__device__ __forceinline__ PrefillDropoutRing prefill_dropout_ring(unsigned shared) {
  return PrefillDropoutRing(shared + kLayout.dropout);
}

// The idle warps of the producing warpgroup.
__device__ __forceinline__ void make_dropout(const KernelParts& parts, unsigned shared) {
  const int maker = static_cast<int>(threadIdx.x) / 32 - 1;
  prefill_dropout_ring(shared).make(parts.dropout, maker, kIdleWarps);
}

// In a consumer.
class PrefillDropout {
 public:
  __device__ __forceinline__ PrefillDropout(unsigned shared, int warpgroup)
      : ring_(prefill_dropout_ring(shared)),
        warp_(warpgroup * (kWarpgroupThreads / 32) +
              static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32) {}

  // Of the step to come.
  __device__ __forceinline__ void take() { ring_.take(warp_, &squares_); }
  __device__ __forceinline__ void skip() { ring_.skip(); }

  template <int kCount>
  __device__ __forceinline__ void keep(unsigned (&p)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) p[i] = squares_.keep(p[i], i / 2, i % 2);
  }

 private:
  PrefillDropoutRing ring_;
  int warp_;  // of all warpgroups
  PrefillDropoutRing::Squares squares_;
};

__device__ __forceinline__ void scale_kept(const KernelParts& parts, RowEnds* ends) {
  for (float& inverse : ends->inverse) inverse *= parts.dropout.scale;
}

}  // namespace attune
