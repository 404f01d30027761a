// SPDX-License-Identifier: Apache-2.0
// The kernel of backward_fused.cuh: its roles, and the end of its tiles. All tiles begin with the last rows, and tiles of lower keys are taken
// first: who starts together soon stands one behind the other, and no one waits for turns any more.
#pragma once

#include "cuda/attention/backward_apart.cuh"  // where kDqApart
#include "cuda/attention/backward_fused.cuh"  // unless kDqApart
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

// Until nobody reads K, which dK overwrites.
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

__device__ __forceinline__ void init_fused_barriers(unsigned shared) {
  for (int i = 0; i < kFusedDsSlots; ++i) {
    mbarrier_init(shared + kFusedLayout.ds_full + 8 * i, kFusedWarps);
    mbarrier_init(shared + kDsEmpty + 8 * i, kDqWarps);  // where kDqApart
  }
  for (int i = 0; i < kFusedPlaces; ++i) {                         // unless kDqFree
    mbarrier_init(shared + kFusedLayout.turn + 8 * i, 1);          // unless kDqFree
    mbarrier_init(shared + kFusedLayout.added + 8 * i, kDqWarps);  // unless kDqFree
  }                                                                // unless kDqFree
  init_copies(shared);                                             // where kDqFree
  for (int i = 0; i < kFusedTileSlots; ++i) {
    mbarrier_init(shared + kFusedLayout.tile_full + 8 * i, 1);
    mbarrier_init(shared + kFusedLayout.tile_empty + 8 * i, kTileReaders);
  }
}

extern "C" __global__ void __launch_bounds__(kFusedThreads, 1)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                  const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_dk,
                  const __grid_constant__ TensorMap map_dv,
                  const __grid_constant__ TensorMap map_dout) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  if (threadIdx.x == 0) init_fused_barriers(shared);
  init_barriers(shared, kFusedLayout.parts);
  wait_for_prior_grid();
  let_next_grid_start();
  const KeysMaps maps{&map_q, &map_k, &map_v, &map_dout, &map_dk, &map_dv};
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads, 0) - 1;
  if (warpgroup == 2) return make_dq(args, shared);  // where kDqApart
  if (warpgroup >= 0) {
    if constexpr (kFusedRegisters.moved) register_increase<kFusedRegisters.consumer>();
    consume_all(args, shared, warpgroup, maps);
    return;
  }
  if constexpr (kFusedRegisters.moved) register_decrease<kFusedRegisters.producer>();
  if (threadIdx.x % 32 != 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp == 0)
    produce_rows<true>(args, shared, maps, FirstTiles(args, shared));
  else if (warp == 1)
    produce_sums<true>(args, shared, TakenTiles<false>(shared));
  else if (warp == 2)                                // where kDqFree
    copy_dq<0>(args, shared);                        // where kDqFree
  else if constexpr (kFreeLayout.copiers > 1)        // where kDqFree
    copy_dq<kFreeLayout.copiers - 1>(args, shared);  // where kDqFree
  else                                               // unless kDqFree
    take_turns(args, shared);                        // unless kDqFree
}

}  // namespace attune
