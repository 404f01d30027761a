// SPDX-License-Identifier: Apache-2.0
// Warp roles of mla_sm90. Warpgroup 0 finds tiles and loads keys and rows of Q, as in cache_sm90.
// If keys lie apart, two of its warps gather them, and one loads rows of Q. Keys of 8 bits are
// gathered and converted by warpgroups of their own, the last ones.
// The other warpgroups consume tile after tile. There are two, each with half of the columns of O
// (mla_halves.cuh), or with few rows one (mla_keys_first_role.cuh).
#pragma once

#include "cuda/cache_sm90/cache_producer.cuh"
#include "cuda/mla_sm90/gathered_keys.cuh"  // where kGathersKeys, else none/
#include "cuda/mla_sm90/mla_halves.cuh"     // where kRows == 64, else mla_keys_first_role.cuh
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

template <class Lists, class Map>
__device__ __forceinline__ void produce_mla(const KernelParts& parts, const Lists& lists,
                                            unsigned shared, const Map& k) {
  if constexpr (kRegisters.moved) register_decrease<kRegisters.producer>();
  const unsigned warp = threadIdx.x / 32;
  if (!kConvertsKeys && (warp == 0 || (kGathersKeys && warp == 2)))
    load_keys(parts, lists, k, shared);
  if (warp == 1) find_tiles(parts, lists, shared);
  if (warp >= 4 - kQueryWarps) CacheQueries(parts, shared).run();
}

// The work of a warpgroup that only gathers and converts keys.
template <class Lists, class Map>
__device__ __forceinline__ void gather_mla(const KernelParts& parts, const Lists& lists,
                                           unsigned shared, const Map& k) {
  if constexpr (kRegisters.gather > 0 && kRegisters.gather < kRegisters.launch)
    register_decrease<kRegisters.gather>();
  load_keys(parts, lists, k, shared);
}

template <class Lists, class Map>
__device__ __forceinline__ void run_mla_roles(const KernelParts& parts, const Lists& lists,
                                              unsigned char* shared_bytes, const Map& k) {
  const unsigned shared = shared_address(shared_bytes);
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle pattern repeats every 1024 bytes
    ConsumerRole::init_own_barriers(shared);
    init_barriers(shared);
    if constexpr (!kGathersKeys) prefetch_tensor_map(k);
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads,
                                    0);  // the same in all lanes, so kept in a uniform register
  if (warpgroup == 0)
    produce_mla(parts, lists, shared, k);
  else if (kConvertsKeys && warpgroup > kConsumers)
    gather_mla(parts, lists, shared, k);
  else
    ConsumerRole::consume(parts, shared, warpgroup - 1);
}

}  // namespace attune
