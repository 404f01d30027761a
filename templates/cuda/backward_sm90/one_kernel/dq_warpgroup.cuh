// SPDX-License-Identifier: Apache-2.0
// Makes dQ in a separate warpgroup of the kernel that makes all gradients. For each step of 64 rows
// it multiplies dS K over all 128 keys, after both warpgroups of keys have written dS to shared
// memory. ordered_dq.cuh adds dQ to global memory.
#pragma once

#include "cuda/backward_sm90/one_kernel/ds.cuh"
#include "cuda/backward_sm90/one_kernel/ordered_dq.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

class DqConsumer {
 public:
  __device__ __forceinline__ explicit DqConsumer(unsigned shared) : shared_(shared), dq_(shared) {}

  // Makes dQ of all steps of a tile. `parity`: phase parity of the barriers of K.
  __device__ __forceinline__ void run(const KeysTile& tile, unsigned parity) {
    await_all_keys(shared_, parity);
#pragma unroll 1
    for (int left = (tile.blocks.end - tile.blocks.begin) * tile.heads; left > 0; --left) make();
  }

 private:
  __device__ __forceinline__ void make() {
    await_ds(shared_, step_);
    float dq[kHeadDimQk / 2];
    wgmma_fence();
    issue_dq_product(dq, ds_tile(shared_, step_), shared_ + kOneKernelLayout.parts.first);
    wgmma_wait<0>();
    wgmma_pin(dq);
    return_ds_slot(shared_, step_);
    dq_.add(0, dq);
    ++step_;
  }

  unsigned shared_;
  unsigned step_ = 0;
  OrderedDq dq_;
};

// Runs the warpgroup that makes dQ.
__device__ __forceinline__ void make_dq(const AttentionArgs& args, unsigned shared) {
  register_decrease<kDqWarpgroupRegisters.dq>();
  DqConsumer consumer(shared);
#pragma unroll 1
  for (TakenTiles<true> tiles(shared); tiles.number() < args.num_tiles; tiles.advance()) {
    consumer.run(keys_tile(args, tiles.number()), tiles.parity());
    named_barrier_arrive(kBarrierK, 32 * kMultiplying);
  }
}

}  // namespace attune
