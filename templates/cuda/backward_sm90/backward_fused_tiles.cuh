// SPDX-License-Identifier: Apache-2.0
// Tile loop and epilogue of the backward_sm90 kernel that makes all gradients and adds dQ in the
// order of keys. All tiles begin with the last rows, and tiles of lower keys are taken first. So
// blocks that start together are soon staggered, and then no block waits for its turn.
#pragma once

#include "cuda/backward_sm90/backward_apart.cuh"  // where kDqApart
#include "cuda/backward_sm90/backward_fused.cuh"  // unless kDqApart
#include "cuda/ptx/named_barrier.cuh"

namespace attune {

constexpr int kReadersOfK = 1;  // arrivals that release K: one thread of each warpgroup

// Waits until no warp reads K any more, because dK overwrites it.
__device__ __forceinline__ void await_readers_of_k() {
  named_barrier_sync(kBarrierK, 32 * kMultiplying);
}

__device__ __forceinline__ void consume_all(const AttentionArgs& args, unsigned shared,
                                            int warpgroup, const KeysMaps& maps) {
  constexpr BackwardSm90Layout kLayout = kFusedLayout.parts;
  AllConsumer consumer(args, shared, warpgroup);
  consumer.begin();  // where kDqApart
#pragma unroll 1
  for (TakenTiles<true> tiles(shared); tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    const int first_key = tile.first_key + warpgroup * kWarpgroupRows;
    float dk[kHeadDimQk / 2], dv[kHeadDimV / 2];
    consumer.run(tile, first_key, tiles.parity(), dk, dv);
    await_readers_of_k();  // unless kDqApart
    const TensorCoord at{0, first_key, tile.head, tile.batch};
    store_gradient<kDtypeKv>(*maps.dv, shared + kLayout.second + warpgroup * kLayout.second_bytes,
                             warpgroup, at, 1.f, dv);
    await_readers_of_k();  // where kDqApart
    store_gradient<kDtypeKv>(*maps.dk, shared + kLayout.first + warpgroup * kLayout.first_bytes,
                             warpgroup, at, args.softmax_scale, dk);
    if (threadIdx.x % kWarpgroupThreads == 0) {
      tma_store_wait_read();
      mbarrier_arrive(shared + kLayout.first_empty + 8 * warpgroup);
      mbarrier_arrive(shared + kLayout.second_empty + 8 * warpgroup);
    }
  }
  consumer.end();  // where kDqApart
  if (threadIdx.x % kWarpgroupThreads == 0) tma_store_wait();
}

__device__ __forceinline__ void produce_streams(const AttentionArgs& args, unsigned shared,
                                                const KeysMaps& maps) {
  produce_rows<true>(args, shared, maps, FirstTiles(args, shared));
}

__device__ __forceinline__ void produce_keys(const AttentionArgs& args, unsigned shared,
                                             const KeysMaps&) {
  produce_sums<true>(args, shared, TakenTiles<false>(shared));
}

}  // namespace attune
