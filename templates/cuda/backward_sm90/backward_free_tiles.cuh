// SPDX-License-Identifier: Apache-2.0
// Tile loops of the backward_sm90 kernel whose blocks add to dQ in no fixed order. K and V of a
// tile are loaded only after the previous tile has released them. One thread loads K and V and
// another loads Q and dout, so that the first rows of a tile need not wait for K and V.
#pragma once

#include "cuda/backward_sm90/backward_free.cuh"

namespace attune {

constexpr int kReadersOfK = kFusedWarps;  // arrivals that release K: each warp reads all keys
constexpr int kFusedThreads = kKeysThreads;
constexpr PrefillSm90Registers kFusedRegisters = kKeysRegisters;

__device__ __forceinline__ void consume_all(const AttentionArgs& args, unsigned shared,
                                            int warpgroup, const KeysMaps& maps) {
  FreeConsumer consumer(args, shared, warpgroup);
#pragma unroll 1
  for (TakenTiles<true> tiles(shared); tiles.number() < args.num_tiles; tiles.advance())
    consumer.run(keys_tile(args, tiles.number()), tiles.parity(), maps);
  if (threadIdx.x % kWarpgroupThreads == 0) tma_store_wait();
}

// Streams Q and dout, and draws tiles from the scheduler. One thread calls it.
__device__ __forceinline__ void produce_streams(const AttentionArgs& args, unsigned shared,
                                                const KeysMaps& maps) {
  TileRing<kQRing<true>> q(shared);
  TileRing<kDoutRing<true>> dout(shared);
#pragma unroll 1
  for (FirstTiles tiles(args, shared); tiles.number() < args.num_tiles; tiles.advance())
    stream_rows<true>(q, dout, maps, keys_tile(args, tiles.number()));
}

// Streams the statistics of a tile's steps. The calling thread has few registers, hence the
// rereads.
template <class FirstRing, class SecondRing>
__device__ __forceinline__ void stream_all_sums(const AttentionArgs& args, const KeysTile& tile,
                                                FirstRing& q, SecondRing& dout) {
  if (tile.blocks.begin >= tile.blocks.end) return;
  const float* sums = row_sums(reread(args), tile.batch, tile.head * kGqaRatio);
#pragma unroll 1
  for (int left = kGqaRatio; left > 0; --left) {
    each_row(tile, [&](int row) {
      stream_sums(q, sums + row);
      stream_sums(dout, sums + row + padded_rows(reread(args)));
    });
    sums += 2 * padded_rows(reread(args));
  }
}

// Loads K and V of each tile, then streams the statistics of rows. Called by another thread than
// produce_streams.
__device__ __forceinline__ void produce_keys(const AttentionArgs& args, unsigned shared,
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

}  // namespace attune
