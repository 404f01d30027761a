// SPDX-License-Identifier: Apache-2.0
// The consumer of mla_sm90 with fewer than 64 rows per tile: one warpgroup, which computes all
// columns of O (mla_keys_first.cuh).
#pragma once

#include "cuda/cache_sm90/cache_request_args.cuh"
#include "cuda/mla_sm90/mla_keys_first_end.cuh"
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

struct KeysFirstRole {
  // This consumer needs only the barriers that every cache kernel has. Stages of keys that are
  // converted have theirs.
  __device__ __forceinline__ static void init_own_barriers(unsigned shared) {
    for (int i = 0; kConvertsKeys && i < kMlaStages * kGatherWarps; ++i)
      mbarrier_init(shared + kMlaLayout.stages_full + 8 * i, 1);
  }
  __device__ __forceinline__ static void consume(const KernelParts& parts, unsigned shared, int);
};

__device__ __forceinline__ void KeysFirstRole::consume(const KernelParts& parts, unsigned shared,
                                                       int) {
  if constexpr (kRegisters.moved) register_increase<kRegisters.consumer>();
  RequestArgs request(parts);
  KeysFirstConsumer consumer(shared);
  CacheReader tiles(shared);
  CacheTile tile;
  bool more = tiles.next(&tile);
  while (more) {
    request.move_to(tile.request);
    OutputOfColumns o;
    ColumnStats stats;
    const AttentionArgs& args = request.args();
    const int kv_head = tile.place.head / kGqaRatio;
    consumer.attend(args, scaled_by_k(parts.scales, kv_head, args.softmax_scale_log2), tile.place,
                    tiles.parity(), o, &stats);
    const KeysFirstEnd end(parts, args, tile.place);
    if (kScheduler == kDrawn || tile.parts == 1) {
      end.store(o, stats);
    } else {
      const CacheJoin join(parts, 0);
      float* const part = join.part(tile.slot);
      end.leave(part, join.stats_in(part), o, stats);
      join.join_if_last(args, tile);
    }
    more = tiles.next(&tile);
  }
}

}  // namespace attune

namespace none {
using ConsumerRole =
    attune::KeysFirstRole;  // a kernel with 64 rows per tile has HalvesRole instead
}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
