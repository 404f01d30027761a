// SPDX-License-Identifier: Apache-2.0
// The two warpgroups of mla_sm90 add their sums of rows here at the end of a tile: each has those
// of the blocks that it owns.
#pragma once

#include "cuda/ptx/load_shared_word.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/shared_word.cuh"
#include "shared/mla_sm90_layout.h"

namespace attune {

constexpr int kBarrierSums = 1;  // named, of both consumers
constexpr int kMlaThreads = kMlaHalves * kWarpgroupThreads;

// `sums`: of rows `row` and `row + 8`, the same in a quad, of this half's blocks; then of all.
// `region` is shared memory for two tiles: nobody waits until the other half has read, which may be
// when this half ends the next tile, if that has one block. So neighbours, which `parity` tells
// apart, stand apart.
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
