// SPDX-License-Identifier: Apache-2.0
// Tiles of keys, the rows that stream past a tile, and the order of both, in all families but
// backward_sm90_band.
#pragma once

#include "cuda/backward_sm90/all_heads.cuh"
#include "cuda/backward_sm90/head_parts.cuh"  // where kHeadParts, else none/
#include "cuda/backward_sm90/tile_ring.cuh"
#include "cuda/parts/row_blocks.cuh"

namespace attune {

static_assert(kKeyBlockN % kWarpgroupRows == 0, "tiles that stay have 64 rows a warpgroup");
static_assert(kKeyBlockM % 16 == 0, "a step has whole 16s of rows");

constexpr int kKeysThreads = (kKeyBlockN / kWarpgroupRows + 1) * kWarpgroupThreads;

// A tile of keys and the blocks of rows that see it, in each head of its part of the group.
struct KeysTile : HeadPart {
  int first_key;
  int head;  // head of K
  int batch;
  BlockRange blocks;
};

// Returns tile `number`. Block 0 comes first: under a causal mask the most rows see its keys.
template <class Heads = AllHeads>
__device__ __forceinline__ KeysTile keys_tile(const AttentionArgs& all, int number,
                                              const Heads& heads = {}) {
  const AttentionArgs args = reread(all);
  const int blocks = (args.seqlen_kv + kKeyBlockN - 1) / kKeyBlockN;
  const HeadParts parts(args, blocks);
  const TilePlace place = heads.place(number, blocks, 1, args.num_heads_kv * parts.count,
                                      args.batch, args.seqlen_q * parts.heads);
  const int first = place.block * kKeyBlockN;
  return {parts.part(args, place.head, place.batch), first, parts.head(place.head), place.batch,
          row_blocks<kKeyBlockM>(args, first, min(first + kKeyBlockN, args.seqlen_kv))};
}

// Calls step(first row) for each block of a tile, in the order in which all roles take them.
template <class Step>
__device__ __forceinline__ void each_row(const KeysTile& tile, const Step& step) {
  const int begin = tile.blocks.begin * kKeyBlockM, end = tile.blocks.end * kKeyBlockM;
  if constexpr (kLastRowsFirst) {
#pragma unroll 1
    for (int row = end - kKeyBlockM; row >= begin; row -= kKeyBlockM) step(row);
  } else {
#pragma unroll 1
    for (int row = begin; row < end; row += kKeyBlockM) step(row);
  }
}

// Calls step(head of Q, first row) for each step of a tile.
template <class Step>
__device__ __forceinline__ void each_step(const KeysTile& tile, const Step& step) {
  if (tile.blocks.begin >= tile.blocks.end) return;
  int head = tile.head * kGqaRatio + tile.head_begin;
#pragma unroll 1
  for (const int end = head + tile.heads; head < end; ++head)
    each_row(tile, [&](int row) { step(head, row); });
}

// Streams a tile of kPanels panels.
template <int kPanels, class Ring>
__device__ __forceinline__ void stream_tile(Ring& ring, const TensorMap& map, int row, int head,
                                            int batch) {
  const unsigned full = ring.await_free();
  mbarrier_arrive_expect_tx(full, kPanels * kKeyBlockM * kPanelRowBytes);
  load_tile<kPanels, kKeyBlockM>(ring.tile(), map, full, row, head, batch);
  ring.advance();
}

}  // namespace attune
