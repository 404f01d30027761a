// SPDX-License-Identifier: Apache-2.0
// Roles of backward_sm90_one_kernel, if its blocks add to dQ in the order of keys (ordered 1). All
// tiles begin with the last rows, and tiles of lower keys are taken first. So blocks that start
// together are soon staggered, and then no block waits for its turn.
#pragma once

#include "cuda/backward_sm90/one_kernel/beside_dq_warpgroup.cuh"  // where kDqWarpgroup
#include "cuda/backward_sm90/one_kernel/ordered_consumer.cuh"     // unless kDqWarpgroup
#include "cuda/backward_sm90/one_kernel/ordered_dq.cuh"
#include "cuda/ptx/named_barrier.cuh"

namespace attune {

class ConsumerBesideDq;
class OrderedConsumer;

struct OrderedRoles {
  using Consumer = Either<kHasDqWarpgroup, ConsumerBesideDq, OrderedConsumer>::Type;

  static constexpr int kThreads = kKeysThreads + (kHasDqWarpgroup ? kWarpgroupThreads : 0);
  static constexpr PrefillSm90Registers kRegisters =
      kHasDqWarpgroup
          ? PrefillSm90Registers{kDqWarpgroupRegisters.launch, kDqWarpgroupRegisters.keys,
                                 kDqWarpgroupRegisters.producer, true}
          : kKeysRegisters;
  static constexpr int kReadersOfK = 1;  // arrivals that release K: one thread of each warpgroup

  __device__ __forceinline__ static void init_dq(unsigned shared) {
    for (int i = 0; i < kOneKernelPlaces; ++i) {
      mbarrier_init(shared + kOneKernelLayout.turn + 8 * i, 1);
      mbarrier_init(shared + kOneKernelLayout.added + 8 * i, kDqWarps);
    }
  }

  // Makes dK and dV of all tiles, in a warpgroup of keys.
  __device__ __forceinline__ static void consume(const AttentionArgs& args,
                                                 const KeysDropout& dropout, unsigned shared,
                                                 int warpgroup, const KeysMaps& maps) {
    constexpr BackwardSm90Layout kLayout = kOneKernelLayout.parts;
    Consumer consumer(args, dropout, shared, warpgroup);
    consumer.begin();
#pragma unroll 1
    for (TakenTiles<true> tiles(shared); tiles.number() < args.num_tiles; tiles.advance()) {
      const KeysTile tile = keys_tile(args, tiles.number());
      const int first_key = tile.first_key + warpgroup * kWarpgroupRows;
      float dk[kHeadDimQk / 2], dv[kHeadDimV / 2];
      consumer.run(tile, first_key, tiles.parity(), dk, dv);
      if constexpr (!kHasDqWarpgroup) await_readers_of_k();
      const TensorCoord at{0, first_key, tile.head, tile.batch};
      if constexpr (!kSplitsHeads)
        store_gradient<kDtypeKv>(*maps.dv,
                                 shared + kLayout.second + warpgroup * kLayout.second_bytes,
                                 warpgroup, at, 1.f, dv);
      if constexpr (kHasDqWarpgroup) await_readers_of_k();  // it may still multiply
      if constexpr (!kSplitsHeads)
        store_gradient<kDtypeKv>(*maps.dk, shared + kLayout.first + warpgroup * kLayout.first_bytes,
                                 warpgroup, at, args.softmax_scale, dk);
      if (threadIdx.x % kWarpgroupThreads == 0) {
        tma_store_wait_read();
        mbarrier_arrive(shared + kLayout.first_empty + 8 * warpgroup);
        mbarrier_arrive(shared + kLayout.second_empty + 8 * warpgroup);
      }
      if constexpr (kSplitsHeads) {
        store_sums(args, slices_of(args), tile.slice, first_key, kSliceOfDv, dv);
        store_sums(args, slices_of(args), tile.slice, first_key, 0, dk);
      }
    }
    consumer.end();
    if (threadIdx.x % kWarpgroupThreads == 0) tma_store_wait();
  }

  __device__ __forceinline__ static void produce_streams(const AttentionArgs& args, unsigned shared,
                                                         const KeysMaps& maps) {
    produce_rows<true>(args, shared, maps, FirstTiles(args, shared));
  }

  __device__ __forceinline__ static void produce_keys(const AttentionArgs& args, unsigned shared,
                                                      const KeysMaps&) {
    produce_sums<true>(args, shared, TakenTiles<false>(shared));
  }

  // Runs in a thread of the third and in one of the fourth warp.
  __device__ __forceinline__ static void add_dq(const AttentionArgs& args, unsigned shared,
                                                const KeysMaps&, int) {
    take_turns(args, shared);
  }

 private:
  // Waits until no warp reads K any more, because dK overwrites it.
  __device__ __forceinline__ static void await_readers_of_k() {
    named_barrier_sync(kBarrierK, 32 * kMultiplying);
  }
};

}  // namespace attune
