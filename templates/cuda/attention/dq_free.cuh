// SPDX-License-Identifier: Apache-2.0
// How dQ leaves the kernel that makes all gradients where no order is asked: as dq_turns.cuh has it, but blocks of keys add when they have
// something to add, to what attune_prepare set to zero. Nobody waits, and no two runs give the same bits.
#pragma once

#include "cuda/attention/backward_keys.cuh"
#include "cuda/attention/drawn_tiles.cuh"
#include "cuda/ptx/add_four.cuh"

namespace attune {

// Where a warpgroup adds the accumulators of a step.
class DqPlaces {
 public:
  __device__ __forceinline__ explicit DqPlaces(unsigned) {}

  // Ahead of the steps of a head of the group: they begin with the tile's last block of rows.
  __device__ __forceinline__ void begin(const AttentionArgs& all, const KeysTile& tile, int head) {
    const AttentionArgs args = reread(all);
    const FusedWorkspace sums(args);
    const int of_all = (tile.batch * args.num_heads_kv + tile.head) * kGqaRatio + head;
    to_ = sums.dq(static_cast<long long>(of_all) * sums.blocks() + tile.blocks.end - 1) +
          reread_thread_index() % kWarpgroupThreads * 4;
  }

  // Of a warpgroup: its half of dQ of a block of rows, or all of it.
  template <int kCount>
  __device__ __forceinline__ void add(int half, const float (&dq)[kCount]) {
    float* const to = to_ + half * (kFusedFloats / 2);
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      add_four(to + i * kWarpgroupThreads, dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
    to_ -= kFusedFloats;
  }

 private:
  float* to_;
};

}  // namespace attune
