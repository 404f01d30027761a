// SPDX-License-Identifier: Apache-2.0
// The consumers of mla_sm90 with 64 rows per tile: two warpgroups, each of which writes half of the
// columns of O (mla_consumer.cuh).
#pragma once

#include "cuda/cache_sm90/cache_join.cuh"
#include "cuda/cache_sm90/cache_request_args.cuh"
#include "cuda/mla_sm90/mla_consumer.cuh"
#include "cuda/ptx/setmaxnreg.cuh"
#include "cuda/sm90/epilogue_words.cuh"

namespace attune {

struct HalvesRole {
  __device__ __forceinline__ static void init_own_barriers(unsigned shared) {
    for (int half = 0; half < kMlaHalves; ++half)
      mbarrier_init(shared + kMlaLayout.p_full + 8 * half, kWarpgroupThreads);
  }
  __device__ __forceinline__ static void consume(const KernelParts& all, unsigned shared, int half);
};
using ConsumerRole = HalvesRole;

__device__ __forceinline__ void HalvesRole::consume(const KernelParts& all, unsigned shared,
                                                    int half) {
  if constexpr (kRegisters.moved) register_increase<kRegisters.consumer>();
  AttentionArgs of_half = all.base;  // o points at this half's columns; half 0 writes LSE
  of_half.o.data = static_cast<unsigned short*>(of_half.o.data) + half * kHeadDimV * kWordsOfO;
  if (half > 0) of_half.lse = nullptr;
  const KernelParts parts{of_half, all.scales, all.scores, all.dropout, all.map, all.cache};
  RequestArgs request(parts);
  MlaConsumer consumer(shared, half);
  CacheReader tiles(shared);
  CacheTile tile;
  bool more = tiles.next(&tile);
  while (more) {
    request.move_to(tile.request);
    MlaOutput o;
    RowStats rows;
    const int kv_head = tile.place.head / kGqaRatio;
    consumer.attend(request.args(),
                    scaled_by_k(all.scales, kv_head, request.args().softmax_scale_log2), tile.place,
                    tiles.parity(), o, &rows);
    const ThreadRows place =
        thread_rows(tile.place, 0, static_cast<int>(threadIdx.x) % kWarpgroupThreads);
    if (kScheduler == kDrawn || tile.parts == 1) {
      RowEnds ends = end_rows(rows);
      store_lse(request.args(), tile.place, place, ends);
      for (float& inverse : ends.inverse) inverse = scaled_by_v(all.scales, kv_head, inverse);
      normalise(o, ends);
      store_output_words(request.args(), tile.place, place, o);
    } else {
      CacheJoin(parts, half).finish(request.args(), tile, place, o, rows);
    }
    more = tiles.next(&tile);
  }
}

}  // namespace attune
