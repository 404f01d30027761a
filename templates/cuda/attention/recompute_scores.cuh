// SPDX-License-Identifier: Apache-2.0
// S = Q K^T of one warp's 16 rows once more, by mma.sync from the same swizzled tiles that wgmma read: the rare way back when
// scores were exponentiated under a maximum that is too far behind (lazy_softmax.cuh). A warp does it alone, while wgmma of
// its warpgroup are in flight; the result has the layout of a wgmma accumulator.
#pragma once

#include "cuda/attention/sm90_layout.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

// Shared address of 16-byte chunk `chunk` of row `row` in a 128-byte-swizzled panel.
__device__ __forceinline__ unsigned swizzled_chunk(unsigned panel, int row, int chunk) {
  return panel + row * kPanelRowBytes + ((chunk ^ (row % 8)) << 4);
}

template <int kCount>
__device__ __forceinline__ void recompute_scores(float (&s)[kCount], unsigned q_tile, unsigned k_tile) {
  constexpr int kSteps = (kHeadDimQk + 15) / 16;
  const int thread = thread_index_anew() % kWarpgroupThreads;
  const int lane = thread % 32;
  const int warp_row = thread / 32 * 16;
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = 0.f;
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    const int chunk = step % 4 * 2;
    const unsigned q_panel = q_tile + step / 4 * kWarpgroupRows * kPanelRowBytes;
    const unsigned k_panel = k_tile + step / 4 * kBlockN * kPanelRowBytes;
    unsigned a[4];
    ldmatrix_x4(a, swizzled_chunk(q_panel, warp_row + lane % 16, chunk + lane / 16));
#pragma unroll
    for (int i = 0; i < kCount; i += 8) {  // 16 keys
      unsigned b[4];
      ldmatrix_x4(b, swizzled_chunk(k_panel, 2 * i + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float d[4] = {s[i + 4 * n], s[i + 4 * n + 1], s[i + 4 * n + 2], s[i + 4 * n + 3]};
        mma<kDtypeQ>(d, a, b[2 * n], b[2 * n + 1]);
#pragma unroll
        for (int j = 0; j < 4; ++j) s[i + 4 * n + j] = d[j];
      }
    }
  }
}

}  // namespace attune
