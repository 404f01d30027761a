// SPDX-License-Identifier: Apache-2.0
// The step that writes a kernel's map of blocks (shared/block_map.h). One thread block writes one
// list. A finder determines which blocks of keys each group of a tile's rows sees. It evaluates a
// mask program (block_map.cuh) or reads the caller's map (granule_lists.cuh). The compiled-in mask
// and window only bound the range of blocks here; the kernel itself applies them. Each family
// defines its tiles: hide_scores.cuh, mma_mask_stage.cuh.
#pragma once

#include "cuda/parts/mask.cuh"
#include "shared/block_map.h"
#include "shared/score_args.h"

namespace attune {

// The tiles of a family: a tile has kGroups groups, and a group has kRows rows of kHeads heads.
template <int kGroupRows, int kGroupCount, int kHeadCount>
struct MapTiles {
  static constexpr int kRows = kGroupRows;
  static constexpr int kGroups = kGroupCount;
  static constexpr int kHeads = kHeadCount;
};

// The list that a thread block writes.
struct MapPlace {
  int row_block;
  int heads;      // index of the tile along heads; 0 if one list is for all heads
  int batch;      // 0 if one list is for all batch entries
  int num_heads;  // number of heads whose visibility goes into the list
};

template <class Tiles>
__device__ __forceinline__ MapPlace map_place(const AttentionArgs& args, const BlockMapArgs& map) {
  constexpr int kRows = Tiles::kRows * Tiles::kGroups;
  const bool by_head = kMapByHead && map.by_head != 0;
  const int row_blocks = (args.seqlen_q + kRows - 1) / kRows;
  const int head_tiles = by_head ? args.num_heads_q / Tiles::kHeads : 1;
  const int block = static_cast<int>(blockIdx.x);
  return {block % row_blocks, block / row_blocks % head_tiles, block / row_blocks / head_tiles,
          by_head ? Tiles::kHeads : 1};
}

// Rows of one head. All numbers count from the call's first batch entry, head and row.
struct RowGroup {
  int batch;
  int head;
  int first, last;
};

// Visibility of a block of keys for a group of rows. `any`: some row sees some key. `all`: all rows
// see all keys.
struct Shown {
  bool any;
  bool all;
};

constexpr int kSeenBlock = 1 << kMapGroupBits;  // a group sees the block; lower bits are per group

// Returns the bits that one group adds to a block's word: kSeenBlock if it sees a key, and its own
// bit if it does not see all keys.
__device__ __forceinline__ int group_bits(const Shown& shown, int group) {
  return (shown.any ? kSeenBlock : 0) | (shown.all ? 0 : 1 << group);
}

// Calls `visit(rows, group)` for each group of rows of a tile, and each head of the list.
template <class Tiles, class Visit>
__device__ __forceinline__ void for_each_group(const AttentionArgs& args, const MapPlace& place,
                                               const Visit& visit) {
#pragma unroll 1
  for (int group = 0; group < Tiles::kGroups; ++group) {
    const int row = (place.row_block * Tiles::kGroups + group) * Tiles::kRows;
    const int last_row = min(row + Tiles::kRows, args.seqlen_q) - 1;
    if (last_row < row) break;
#pragma unroll 1
    for (int head = 0; head < place.num_heads; ++head)
      visit(RowGroup{place.batch, place.heads * Tiles::kHeads + head, row, last_row}, group);
  }
}

// Appends entries for the seen blocks after the first `count` entries. Returns the new number of
// entries. All lanes of one warp call it.
__device__ __forceinline__ int append_entries(const int* found, int begin, int blocks, int* entries,
                                              int count) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int first = 0; first < blocks; first += 32) {
    const int entry = first + lane < blocks ? found[first + lane] : 0;
    const unsigned seen = __ballot_sync(~0u, entry & kSeenBlock);
    if (entry & kSeenBlock)
      entries[count + __popc(seen & ((1u << lane) - 1))] =
          (begin + first + lane) << kMapGroupBits | (entry & (kSeenBlock - 1));
    count += __popc(seen);
  }
  return count;
}

// Writes the list of a thread block, with kThreads threads. block_map.cuh evaluates a mask program;
// granule_lists.cuh (kByGranules) reads the caller's map.
template <bool kByGranules>
struct BlockLister;

// Writes a list. `first_key(first_row)` returns the key at which the blocks of a tile begin. All
// threads call `look_up(place, first_key, blocks, found)`. `look_up` writes a word to `found` for
// each of `blocks` blocks from its `first_key` on.
template <class Tiles, class FirstKey, class LookUp>
__device__ __forceinline__ void write_list(const AttentionArgs& args, const BlockMapArgs& map,
                                           const FirstKey& first_key, const LookUp& look_up) {
  extern __shared__ int found[];
  constexpr int kRows = Tiles::kRows * Tiles::kGroups;
  constexpr int kAllPartial = (1 << Tiles::kGroups) - 1;
  static_assert(Tiles::kGroups <= kMapGroupBits, "an entry has a bit for each group of rows");
  const MapPlace place = map_place<Tiles>(args, map);
  const int first_row = place.row_block * kRows, origin = first_key(first_row);
  const BlockRange range =
      visible_blocks<kBlockN>(args, first_row, min(first_row + kRows, args.seqlen_q), origin);
  int* list = map.lists + static_cast<long long>(blockIdx.x) * map.list_words;
  int count = 0;
#pragma unroll 1
  for (int begin = range.begin; begin < range.end; begin += kMapChunk) {
    const int blocks = min(kMapChunk, range.end - begin);
    look_up(place, origin + begin * kBlockN, blocks, found);
    __syncthreads();
    if (threadIdx.x < 32) count = append_entries(found, begin, blocks, list + 1, count);
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    if (count == 0) list[1] = range.begin << kMapGroupBits | kAllPartial;
    list[0] = max(count, 1);
  }
}

}  // namespace attune
