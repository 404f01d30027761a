// SPDX-License-Identifier: Apache-2.0
// The layout of dS^T of a warpgroup's 64 keys in shared memory, for dQ: a panel of rows of queries.
#pragma once

#include "cuda/ptx/stmatrix.cuh"
#include "shared/layouts/prefill_sm90_layout.h"

namespace attune {

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
