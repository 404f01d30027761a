// SPDX-License-Identifier: Apache-2.0
// How dQ leaves the kernel that makes all gradients where no order is asked: blocks of keys add to fp32 in the workspace, as it stands in
// dq_turns.cuh, when they have something to add; attune_prepare set it to zero (clear_dq.cuh). Warpgroups put accumulators, as they stand, into shared
// memory, and a thread of the producer's warpgroup for each adds them by bulk copies. Bits differ from run to run.
//
//   warpgroups:         wait dq_empty; write; a lane of each warp arrives on dq_full
//   threads of copies:  wait dq_full; add; arrive on dq_empty when the copy has read
#pragma once

#include "cuda/attention/backward_keys.cuh"
#include "cuda/attention/drawn_tiles.cuh"
#include "cuda/ptx/bulk_add.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

class DqPlaces {
 public:
  __device__ __forceinline__ explicit DqPlaces(unsigned shared) : shared_(shared) {}

  // Of a warpgroup: its half of dQ of a block of rows, or all of it.
  template <int kCount>
  __device__ __forceinline__ void add(int part, const float (&dq)[kCount]) {
    static_assert(kCount * 4 * kWarpgroupThreads == kFreeLayout.staging_bytes);
    mbarrier_wait(shared_ + kFreeLayout.empty + 8 * part, (step_ & 1) ^ 1, "dq empty");
    const unsigned to = shared_ + kFreeLayout.staging + part * kFreeLayout.staging_bytes +
                        reread_thread_index() % kWarpgroupThreads * 16;
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      store_shared_16(to + i * 4 * kWarpgroupThreads,
                      {{__float_as_uint(dq[i]), __float_as_uint(dq[i + 1]),
                        __float_as_uint(dq[i + 2]), __float_as_uint(dq[i + 3])}});
    fence_proxy_async();
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kFreeLayout.full + 8 * part);
    ++step_;
  }

 private:
  unsigned shared_;
  unsigned step_ = 0;
};

__device__ __forceinline__ void init_copies(unsigned shared) {
  for (int i = 0; i < kFreeLayout.copiers; ++i) {
    mbarrier_init(shared + kFreeLayout.full + 8 * i, kWarpgroupThreads / 32);
    mbarrier_init(shared + kFreeLayout.empty + 8 * i, 1);
  }
}

// A thread of copies, of the third or the fourth warp.
__device__ __forceinline__ void copy_dq(const AttentionArgs& args, unsigned shared, int part) {
  const unsigned full = shared + kFreeLayout.full + 8 * part;
  const unsigned from = shared + kFreeLayout.staging + part * kFreeLayout.staging_bytes;
  unsigned step = 0;
#pragma unroll 1
  for (TakenTiles<false> tiles(shared); tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    each_step(tile, [&](int head, int row) {
      const AttentionArgs here = reread(args);
      const FusedWorkspace sums(here);
      const long long of_all = static_cast<long long>(tile.batch) * here.num_heads_q + head;
      float* const to =
          sums.dq(of_all * sums.blocks() + row / kKeyBlockM) + part * (kFusedFloats / 2);
      mbarrier_wait(full, step & 1, "dq full");
      bulk_add(to, from, kFreeLayout.staging_bytes);
      tma_store_commit();
      tma_store_wait_read();
      mbarrier_arrive(full + kFreeLayout.empty - kFreeLayout.full);
      ++step;
    });
  }
  tma_store_wait();
}

}  // namespace attune
