// SPDX-License-Identifier: Apache-2.0
// Warp roles of cache_sm90. Warpgroup 0 finds tiles and loads them (cache_producer.cuh,
// cache_loads.cuh). The others consume tile after tile and write O. Like warp_roles.cuh, but the
// tiles are found on the device.
#pragma once

#include "cuda/cache_sm90/cache_join.cuh"
#include "cuda/cache_sm90/cache_loads.cuh"
#include "cuda/cache_sm90/cache_producer.cuh"
#include "cuda/cache_sm90/cache_request_args.cuh"
#include "cuda/ptx/setmaxnreg.cuh"
#include "cuda/sm90/epilogue_rows.cuh"
#include "cuda/sm90/epilogue_words.cuh"
#include "cuda/sm90/wgmma_consumer.cuh"

namespace attune {

__device__ __forceinline__ void produce(const KernelParts& parts, unsigned shared,
                                        const TensorMap& k, const TensorMap& v) {
  if constexpr (kRegisters.moved) register_decrease<kRegisters.producer>();
  const unsigned warp = threadIdx.x / 32;
  if (warp == 0) CacheLoads<false>(parts, k, shared).run();
  if (warp == 1) find_tiles(parts, lists, shared);
  if (warp == 2) CacheLoads<true>(parts, v, shared).run();
  if (warp == 3) CacheQueries(parts, shared).run();
}

__device__ __forceinline__ void consume(const KernelParts& parts, unsigned shared, int warpgroup) {
  if constexpr (kRegisters.moved) register_increase<kRegisters.consumer>();
  RequestArgs request(parts);
  ScoresOfRequest<ScoreArgs> scores = parts.scores;
  const KernelParts here{request.args(), parts.scales, scores,
                         parts.dropout,  parts.map,    parts.cache};
  WgmmaConsumer consumer(here, shared, warpgroup);
  CacheReader tiles(shared);
  CacheTile tile;
  bool more = tiles.next(&tile);
  while (more) {
    request.move_to(tile.request);
    take_lengths(tile.request, &scores);
    tile.place.cache = &parts.cache;
    Output o;
    RowStats rows;
    consumer.attend(tile.place, tiles.parity(), o, &rows);
    // While the last P V runs, compute all that the end of the tile needs besides O, and read the
    // next tile.
    const int thread = reread_thread_index() % kWarpgroupThreads;
    const ThreadRows place = thread_rows(tile.place, warpgroup, thread);
    rows.sum[0] = quad_sum(rows.sum[0]);
    rows.sum[1] = quad_sum(rows.sum[1]);
    CacheTile next;
    more = tiles.next(&next);
    if (kScheduler == kDrawn || tile.parts == 1) {
      RowEnds ends = consumer.ends(rows);
      join_sinks(parts.scores, place, &ends);
      store_lse(here, tile.place, place, ends);
      consumer.finish(o);
      normalise(o, ends);
      store_output_words(here, tile.place, place, o);
    } else {
      consumer.finish(o);
      CacheJoin(parts, warpgroup).finish(here, tile, place, o, rows);
    }
    tile = next;
  }
}

__device__ __forceinline__ void run_roles(const KernelParts& parts, unsigned char* shared_bytes,
                                          const TensorMap& k, const TensorMap& v) {
  const unsigned shared = shared_address(shared_bytes);
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle pattern repeats every 1024 bytes
    init_barriers(shared);
    prefetch_tensor_map(k);
    prefetch_tensor_map(v);
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads,
                                    0);  // the same in all lanes, so kept in a uniform register
  if (warpgroup == 0)
    produce(parts, shared, k, v);
  else
    consume(parts, shared, warpgroup - 1);
}

}  // namespace attune
