// SPDX-License-Identifier: Apache-2.0
// Adds the row sums of the two warpgroups of mla_sm90 at the end of a tile. Each warpgroup has
// summed only the blocks that it owns.
#pragma once

#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "shared/layouts/mla_sm90_layout.h"

namespace attune {

constexpr int kBarrierSums = 1;  // named barrier of both consumers
constexpr int kMlaThreads = kMlaHalves * kWarpgroupThreads;

// Adds the other half's sums to `sums`, so that these cover all blocks. `sums` belong to rows `row`
// and `row + 8`, and are equal in all lanes of a quad. `region` has room for two tiles, selected by
// `parity`, because one half does not wait until the other has read. If the next tile has one
// block, the other half may still read when this half ends that tile.
__device__ __forceinline__ void add_sums_of_halves(unsigned region, unsigned parity, int half,
                                                   int row, float (&sums)[2]) {
  const unsigned of_tile = region + parity * (kMlaHalves * kWarpgroupRows * 4) + row * 4;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (threadIdx.x % 4 == 0)
      store_shared_word(of_tile + half * (kWarpgroupRows * 4) + 32 * i, __float_as_int(sums[i]));
  named_barrier_sync(kBarrierSums, kMlaThreads);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float other =
        __uint_as_float(load_shared_word(of_tile + (1 - half) * (kWarpgroupRows * 4) + 32 * i));
    sums[i] = half == 0 ? sums[i] + other : other + sums[i];
  }
}

}  // namespace attune
