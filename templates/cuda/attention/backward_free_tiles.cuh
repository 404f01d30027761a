// SPDX-License-Identifier: Apache-2.0
// Tiles of the kernel of backward_sm90 that makes all gradients in no order. The first rows of a tile do not wait for its K and V, for which the
// tile before has to leave: other threads load these.
#pragma once

#include "cuda/attention/backward_free.cuh"

namespace attune {

constexpr int kReadersOfK = kFusedWarps;  // who tell that they are done, of all keys
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

// A thread's: Q and dout. It draws tiles.
__device__ __forceinline__ void produce_streams(const AttentionArgs& args, unsigned shared,
                                                const KeysMaps& maps) {
  TileRing<kQRing<true>> q(shared);
  TileRing<kDoutRing<true>> dout(shared);
#pragma unroll 1
  for (FirstTiles tiles(args, shared); tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    each_step(tile, [&](int head, int row) {
      stream_tile<kFusedLayout.parts.panels_qk>(q, *maps.q, row, head, tile.batch);
      stream_tile<kFusedLayout.parts.panels_v>(dout, *maps.dout, row, head, tile.batch);
    });
  }
}

// The statistics of a tile's steps, by a thread of few registers.
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

// Another thread's: K and V, then the statistics of rows.
__device__ __forceinline__ void produce_keys(const AttentionArgs& args, unsigned shared,
                                             const KeysMaps& maps) {
  constexpr BackwardSm90Layout kLayout = kFusedLayout.parts;
  TileRing<kQRing<true>> q(shared);
  TileRing<kDoutRing<true>> dout(shared);
#pragma unroll 1
  for (TakenTiles<false> tiles(shared); tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    load_staying<kLayout.panels_qk, kLayout.warpgroups>(
        shared + kLayout.first, kLayout.first_bytes, *maps.k, shared + kLayout.first_full,
        shared + kLayout.first_empty, tiles.parity(), tile.first_key, tile.head, tile.batch);
    load_staying<kLayout.panels_v, kLayout.warpgroups>(
        shared + kLayout.second, kLayout.second_bytes, *maps.v, shared + kLayout.second_full,
        shared + kLayout.second_empty, tiles.parity(), tile.first_key, tile.head, tile.batch);
    stream_all_sums(args, tile, q, dout);
  }
}

}  // namespace attune
