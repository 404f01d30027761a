// SPDX-License-Identifier: Apache-2.0
// The roles of mla_sm90: warpgroup 0 finds tiles and loads keys and rows of Q, as in cache_sm90; the other two consume tile after tile, and each
// writes half of the columns of O.
#pragma once

#include "cuda/attention/cache_join.cuh"
#include "cuda/attention/cache_producer.cuh"
#include "cuda/attention/cache_request_args.cuh"
#include "cuda/attention/epilogue_words.cuh"
#include "cuda/attention/mla_consumer.cuh"
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

__device__ __forceinline__ void produce_mla(const KernelParts& parts, unsigned shared,
                                            const TensorMap& k) {
  if constexpr (kRegisters.moved) register_decrease<kRegisters.producer>();
  const unsigned warp = threadIdx.x / 32;
  if (warp == 0) CacheLoads<false>(parts, k, shared).run();
  if (warp == 1) find_tiles(parts, shared);
  if (warp >= 2) CacheQueries(parts, shared).run();
}

__device__ __forceinline__ void consume_mla(const KernelParts& all, unsigned shared, int half) {
  if constexpr (kRegisters.moved) register_increase<kRegisters.consumer>();
  AttentionArgs of_half = all.base;  // of O, its columns; LSE is left to the first half
  of_half.o.data = static_cast<unsigned short*>(of_half.o.data) + half * kHeadDimV;
  if (half > 0) of_half.lse = nullptr;
  const KernelParts parts{
      of_half,
      all.cache,
  };
  RequestArgs request(parts);
  MlaConsumer consumer(shared, half);
  CacheReader tiles(shared);
  CacheTile tile;
  bool more = tiles.next(&tile);
  while (more) {
    request.move_to(tile.request);
    MlaOutput o;
    RowStats rows;
    consumer.attend(request.args(), tile.place, tiles.parity(), o, &rows);
    const ThreadRows place =
        thread_rows(tile.place, 0, static_cast<int>(threadIdx.x) % kWarpgroupThreads);
    if (kScheduler == kDrawn || tile.parts == 1) {
      const RowEnds ends = end_rows(rows);
      store_lse(request.args(), tile.place, place, ends);
      normalise(o, ends);
      store_output_words(request.args(), tile.place, place, o);
    } else {
      CacheJoin(parts, half).finish(request.args(), tile, place, o, rows);
    }
    more = tiles.next(&tile);
  }
}

__device__ __forceinline__ void run_mla_roles(const KernelParts& parts, unsigned char* shared_bytes,
                                              const TensorMap& k) {
  const unsigned shared = shared_address(shared_bytes);
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle pattern repeats every 1024 bytes
    for (int half = 0; half < kMlaHalves; ++half)
      mbarrier_init(shared + kMlaLayout.p_full + 8 * half, kWarpgroupThreads);
    init_barriers(shared);
    prefetch_tensor_map(k);
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads,
                                    0);  // the same in all lanes, so kept in a uniform register
  if (warpgroup == 0)
    produce_mla(parts, shared, k);
  else
    consume_mla(parts, shared, warpgroup - 1);
}

}  // namespace attune
