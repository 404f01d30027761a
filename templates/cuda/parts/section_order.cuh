// SPDX-License-Identifier: Apache-2.0
// The order of tiles of gradient kernels: as in tile_scheduler.cuh, but with 32-bit divisions, for
// threads with few registers.
#pragma once

#include "cuda/parts/mask.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

// Returns a copy of the arguments, reread. Values computed from it are computed at the place of the
// call and hold no registers across loops.
__device__ __forceinline__ AttentionArgs reread(const AttentionArgs& args) {
  AttentionArgs here = args;
  here.seqlen_q = reread(args.seqlen_q);
  here.seqlen_kv = reread(args.seqlen_kv);
  here.num_heads_q = reread(args.num_heads_q);
  here.num_heads_kv = reread(args.num_heads_kv);
  here.batch = reread(args.batch);
  here.workspace = const_cast<void*>(reread(static_cast<const void*>(here.workspace)));
  return here;
}

// A block of rows, or of keys, of one head of one batch entry.
struct TilePlace {
  int block;
  int head;
  int batch;
};

// Returns the place of tile `number`. Heads of all batch entries form sections of `section_heads`
// heads. A section has block 0 of all its heads, then block 1 of all its heads, and so on.
__device__ __forceinline__ TilePlace place_in_section(int number, int blocks, int heads, int batch,
                                                      int section_heads) {
  const int all = heads * batch, most = min(section_heads, all);
  const int section = number / (blocks * most);
  number -= section * blocks * most;
  const int here = min(most, all - section * most);
  const int block = number / here;
  const int head = section * most + number - block * here;
  const int entry = head / heads;
  return {block, head - entry * heads, entry};
}

// Returns the place of tile `number`. Under a causal mask the longest tiles of all heads come
// first; callers map block 0 to the longest tile. Heads then form sections whose streamed operands,
// `streamed_rows` rows each, fit in the L2 cache together. Without a causal mask, all blocks of one
// head come before those of the next head.
__device__ __forceinline__ TilePlace place_of(int number, int blocks, int heads, int batch,
                                              int streamed_rows) {
  if constexpr (kIsCausal) {
    const float bytes = 2.f * (kHeadDimQk + kHeadDimV) * static_cast<float>(max(streamed_rows, 1));
    const float fitting = static_cast<float>(kL2SectionMb << 20) / bytes;
    return place_in_section(number, blocks, heads, batch, max(static_cast<int>(fitting), 1));
  }
  const int head = number / blocks, entry = head / heads;
  return {number - head * blocks, head - entry * heads, entry};
}

}  // namespace attune
