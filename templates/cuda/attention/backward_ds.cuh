// SPDX-License-Identifier: Apache-2.0
// How dS^T of a step stands in shared memory for dQ: of each warpgroup of 64 keys a panel, as rows of queries.
#pragma once

#include "cuda/attention/fused_layout.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/stmatrix_transposed.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

constexpr int kDsPanelBytes = kKeyBlockM * kPanelRowBytes;

// Where a thread of a warpgroup writes in its panel, from row kFirst on.
template <int kFirst>
__device__ __forceinline__ int ds_offset(int thread) {
  const int lane = thread % 32, warp = thread / 32;
  const int row = kFirst + lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
  return row * kPanelRowBytes + ((chunk ^ row % 8) << 4);
}

template <int kCount>
__device__ __forceinline__ void write_ds(unsigned to, const unsigned (&ds)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    const unsigned words[4] = {ds[4 * i], ds[4 * i + 1], ds[4 * i + 2], ds[4 * i + 3]};
    stmatrix_x4_transposed(to + i * 16 * kPanelRowBytes, words);
  }
}

// Panels of step `step`.
__device__ __forceinline__ unsigned ds_tile(unsigned shared, unsigned step) {
  return shared + kFusedLayout.parts.ds + step % kDsSlots * kFusedLayout.parts.ds_bytes;
}

// By all lanes of a warp, when they have written theirs of step `step`.
__device__ __forceinline__ void tell_ds(unsigned shared, unsigned step) {
  fence_proxy_async();
  __syncwarp();
  mbarrier_arrive_if(threadIdx.x % 32 == 0, shared + kFusedLayout.ds_full + 8 * (step % kDsSlots));
}

// Until both warpgroups of keys have told theirs.
__device__ __forceinline__ void await_ds(unsigned shared, unsigned step) {
  mbarrier_wait(shared + kFusedLayout.ds_full + 8 * (step % kDsSlots), step / kDsSlots & 1,
                "ds full");
}

}  // namespace attune
