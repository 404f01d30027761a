// SPDX-License-Identifier: Apache-2.0
// dQ of the kernel that makes all gradients, by a warpgroup of its own: of each step of 64 rows dS K over all 128 keys, when both warpgroups of keys
// have kept dS. What becomes of it: dq_turns.cuh.
#pragma once

#include "cuda/attention/dq_products.cuh"
#include "cuda/attention/dq_turns.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

class DqConsumer {
 public:
  __device__ __forceinline__ explicit DqConsumer(unsigned shared)
      : shared_(shared), places_(shared) {}

  // `parity`: of the barriers of what stays.
  __device__ __forceinline__ void run(const KeysTile& tile, unsigned parity) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      mbarrier_wait(shared_ + kFusedLayout.parts.first_full + 8 * i, parity, "k_full");
#pragma unroll 1
    for (int left = (tile.blocks.end - tile.blocks.begin) * kGqaRatio; left > 0; --left) make();
  }

 private:
  __device__ __forceinline__ void make() {
    const unsigned slot = step_ % kDsSlots;
    mbarrier_wait(shared_ + kFusedLayout.ds_full + 8 * slot, step_ / kDsSlots & 1, "ds full");
    const unsigned rows = shared_ + kFusedLayout.parts.ds + slot * kFusedLayout.parts.ds_bytes;
    const unsigned keys = shared_ + kFusedLayout.parts.first;
    float dq[kHeadDimQk / 2];
    wgmma_fence();
    issue_dq_product(dq, rows, keys);
    wgmma_wait<0>();
    wgmma_pin(dq);
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kDsEmpty + 8 * slot);
    places_.add(0, dq);
    ++step_;
  }

  unsigned shared_;
  unsigned step_ = 0;
  DqPlaces places_;
};

// All that the warpgroup does.
__device__ __forceinline__ void make_dq(const AttentionArgs& args, unsigned shared) {
  register_decrease<kApartRegisters.dq>();
  DqConsumer consumer(shared);
#pragma unroll 1
  for (TakenTiles<true> tiles(shared); tiles.number() < args.num_tiles; tiles.advance()) {
    consumer.run(keys_tile(args, tiles.number()), tiles.parity());
    named_barrier_arrive(kBarrierK, 32 * kMultiplying);
  }
}

}  // namespace attune
