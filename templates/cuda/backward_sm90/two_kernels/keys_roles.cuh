// SPDX-License-Identifier: Apache-2.0
// Warp roles and tile loop of the kernels that make dK and dV, or one of them (keys.cuh).
#pragma once

#include "cuda/backward_sm90/keys.cuh"
#include "cuda/backward_sm90/store_gradient.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

__device__ __forceinline__ const TensorMap* address_of(const TensorMap& map) { return &map; }

// Returns the sums of all parts of heads (head_parts.cuh). They follow L2 and delta.
__device__ __forceinline__ float* slices_of(const AttentionArgs& args) {
  return reinterpret_cast<float*>(
      static_cast<char*>(args.workspace) +
      backward_sums_bytes(static_cast<long long>(args.batch) * args.num_heads_q,
                          padded_rows(args)));
}

template <bool kMakesK, bool kMakesV>
__device__ __forceinline__ void consume_rows(const AttentionArgs& args, const KeysDropout& dropout,
                                             unsigned shared, int warpgroup, const KeysMaps& maps) {
  constexpr BackwardSm90Layout kLayout = kKeysLayout<kMakesK>;
  const unsigned first = shared + kLayout.first + warpgroup * kLayout.first_bytes;
  const unsigned second = shared + kLayout.second + warpgroup * kLayout.second_bytes;
  KeysConsumer<kMakesK, kMakesV> consumer(args, dropout, shared, warpgroup);
#pragma unroll 1
  for (TileNumbers tiles; tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    const int first_key = tile.first_key + warpgroup * kWarpgroupRows;
    float dk[kHeadDimQk / 2], dv[kHeadDimV / 2];
    consumer.run(tile, first_key, tiles.parity(), dk, dv);
    const TensorCoord at{0, first_key, tile.head, tile.batch};
    if constexpr (kSplitsHeads) {
      named_barrier_sync(kBarrierWarpgroup + warpgroup, kWarpgroupThreads);  // tile no longer read
    } else {
      if constexpr (kMakesV)
        store_gradient<kDtypeKv>(*maps.dv, kMakesK ? second : first, warpgroup, at, 1.f, dv);
      if constexpr (kMakesK)
        store_gradient<kDtypeKv>(*maps.dk, first, warpgroup, at, args.softmax_scale, dk);
    }
    if (threadIdx.x % kWarpgroupThreads == 0) {
      tma_store_wait_read();
      mbarrier_arrive(shared + kLayout.first_empty + 8 * warpgroup);
      mbarrier_arrive(shared + kLayout.second_empty + 8 * warpgroup);
    }
    if constexpr (kSplitsHeads) {
      if constexpr (kMakesV)
        store_sums(args, slices_of(args), tile.slice, first_key, kSliceOfDv, dv);
      if constexpr (kMakesK) store_sums(args, slices_of(args), tile.slice, first_key, 0, dk);
    }
  }
  if (threadIdx.x % kWarpgroupThreads == 0) tma_store_wait();
}

template <bool kMakesK, bool kMakesV>
__device__ __forceinline__ void run_keys(const AttentionArgs& args, const KeysDropout& dropout,
                                         const KeysMaps& maps) {
  constexpr BackwardSm90Layout kLayout = kKeysLayout<kMakesK>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  init_barriers(shared, kKeysLayout<kMakesK>);
  // The previous kernel of this plan starts this kernel early (dependent launch). If the sums come
  // from a step before that kernel, they are complete by then. Only if that kernel makes the sums
  // itself, this kernel must wait at once.
  constexpr bool kBehindKeys = !kMakesK && kSplitKv;
  constexpr bool kSumsAhead = kBehindKeys || (kGradientQ && !kFoldSums);
  if constexpr (!kSumsAhead) wait_for_prior_grid();
  let_next_grid_start();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads, 0) - 1;
  if (warpgroup < 0) {
    if constexpr (kKeysRegisters.moved) register_decrease<kKeysRegisters.producer>();
    if (threadIdx.x == 0)
      produce_rows<kMakesK>(args, shared, maps);
    else if (threadIdx.x == 32)
      produce_sums<kMakesK>(args, shared);
  } else {
    if constexpr (kKeysRegisters.moved) register_increase<kKeysRegisters.consumer>();
    consume_rows<kMakesK, kMakesV>(args, dropout, shared, warpgroup, maps);
  }
  wait_for_prior_grid();  // then a grid that waits for this one waits for all earlier ones
}

}  // namespace attune
