// SPDX-License-Identifier: Apache-2.0
// Barriers, accumulators and the layout of dS that the kernels of all families of gradients on
// Hopper have.
#pragma once

#include "cuda/parts/row_sums.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "shared/layouts/backward_sm90_layout.h"
#include "shared/layouts/prefill_sm90_layout.h"

namespace attune {

constexpr int kBarrierWarpgroup = 1;  // first named barrier; each warpgroup has one

// Returns the first of the two rows for which a thread has accumulators, among its warpgroup's 64.
// The second row is 8 further down.
__device__ __forceinline__ int first_accumulator_row() {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  return thread / 32 * 16 + thread % 32 / 4;
}

// The layout of dS^T of a warpgroup's 64 keys in shared memory, for dQ: a panel of rows of queries.

// Returns the offset in its panel at which a thread of a warpgroup writes, from row kFirst on.
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

}  // namespace attune
