// SPDX-License-Identifier: Apache-2.0
// Warp roles of the backward_sm90 kernel that makes all gradients.
#pragma once

#include "cuda/backward_sm90/backward_free_tiles.cuh"   // where kDqFree
#include "cuda/backward_sm90/backward_fused_tiles.cuh"  // unless kDqFree
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

__device__ __forceinline__ void init_fused_barriers(unsigned shared) {
  for (int i = 0; i < kDsSlots; ++i) {
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
                  const __grid_constant__ DropoutArgs dropout,  // where kDropout
                  const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                  const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_dk,
                  const __grid_constant__ TensorMap map_dv,
                  const __grid_constant__ TensorMap map_dout) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  if (threadIdx.x == 0) init_fused_barriers(shared);
  init_barriers(shared, kFusedLayout.parts, kReadersOfK);
  wait_for_prior_grid();
  let_next_grid_start();
  KeysMaps maps{&map_q, &map_k, &map_v, &map_dout, &map_dk, &map_dv};
  maps.dropout = &dropout;  // where kDropout
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
    produce_streams(args, shared, maps);
  else if (warp == 1)
    produce_keys(args, shared, maps);
  else if (warp == 2)                    // where kDqFree
    copy_dq<0>(args, shared, *maps.dk);  // where kDqFree
  else                                   // where kDqFree
    copy_dq<1>(args, shared, *maps.dk);  // where kDqFree
  else                                   // unless kDqFree
      take_turns(args, shared);          // unless kDqFree
}

}  // namespace attune
