// SPDX-License-Identifier: Apache-2.0
// Roles of backward_sm90_one_kernel, if its blocks add to dQ in no fixed order (ordered 0). K and V
// of a tile are loaded only after the previous tile has released them. One thread loads K and V and
// another loads Q and dout, so that the first rows of a tile need not wait for K and V.
#pragma once

#include "cuda/backward_sm90/one_kernel/unordered_consumer.cuh"

namespace attune {

struct UnorderedRoles {
  static constexpr int kThreads = kKeysThreads;
  static constexpr PrefillSm90Registers kRegisters = kKeysRegisters;
  static constexpr int kReadersOfK =
      kOneKernelWarps;  // arrivals that release K: each warp reads all

  __device__ __forceinline__ static void init_dq(unsigned shared) { init_unordered_dq(shared); }

  // Makes dK and dV of all tiles, and half of dQ, in a warpgroup of keys.
  __device__ __forceinline__ static void consume(const AttentionArgs& args,
                                                 const KeysDropout& dropout, unsigned shared,
                                                 int warpgroup, const KeysMaps& maps) {
    UnorderedConsumer consumer(args, dropout, shared, warpgroup);
#pragma unroll 1
    for (TakenTiles<true> tiles(shared); tiles.number() < args.num_tiles; tiles.advance())
      consumer.run(keys_tile(args, tiles.number()), tiles.parity(), maps);
    if (threadIdx.x % kWarpgroupThreads == 0) tma_store_wait();
  }

  // Streams Q and dout, and draws tiles from the scheduler. One thread calls it.
  __device__ __forceinline__ static void produce_streams(const AttentionArgs& args, unsigned shared,
                                                         const KeysMaps& maps) {
    TileRing<kQRing<true>> q(shared);
    TileRing<kDoutRing<true>> dout(shared);
#pragma unroll 1
    for (FirstTiles tiles(args, shared); tiles.number() < args.num_tiles; tiles.advance())
      stream_rows<true>(q, dout, maps, keys_tile(args, tiles.number()));
  }

  // Loads K and V of each tile, then streams the statistics of rows. Called by another thread than
  // produce_streams.
  __device__ __forceinline__ static void produce_keys(const AttentionArgs& args, unsigned shared,
                                                      const KeysMaps& maps) {
    TileRing<kQRing<true>> q(shared);
    TileRing<kDoutRing<true>> dout(shared);
#pragma unroll 1
    for (TakenTiles<false> tiles(shared); tiles.number() < args.num_tiles; tiles.advance()) {
      const KeysTile tile = keys_tile(args, tiles.number());
      load_keys<true>(shared, maps, tile, tiles.parity());
      stream_all_sums(args, tile, q, dout);
    }
  }

  // Copies dQ, and dK, of a warpgroup of keys. Runs in a thread of the third and in one of the
  // fourth warp.
  __device__ __forceinline__ static void add_dq(const AttentionArgs& args, unsigned shared,
                                                const KeysMaps& maps, int warp) {
    if (warp == 2)
      copy_dq<0>(args, shared, *maps.dk);
    else
      copy_dq<1>(args, shared, *maps.dk);
  }

 private:
  // Streams the statistics of a tile's steps. The calling thread has few registers, hence the
  // rereads.
  template <class FirstRing, class SecondRing>
  __device__ __forceinline__ static void stream_all_sums(const AttentionArgs& args,
                                                         const KeysTile& tile, FirstRing& q,
                                                         SecondRing& dout) {
    if (tile.blocks.begin >= tile.blocks.end) return;
    const float* sums = row_sums(reread(args), tile.batch, tile.head * kGqaRatio + tile.head_begin);
#pragma unroll 1
    for (int left = tile.heads; left > 0; --left) {
      each_row(tile, [&](int row) {
        stream_sums(q, sums + row);
        stream_sums(dout, sums + row + padded_rows(reread(args)));
      });
      sums += 2 * padded_rows(reread(args));
    }
  }
};

}  // namespace attune
