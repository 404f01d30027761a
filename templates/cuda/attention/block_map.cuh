// SPDX-License-Identifier: Apache-2.0
// Makes the map of blocks (shared/block_map.h): which blocks of keys a tile of query rows sees under the mask program, whole or in
// part. One block of threads writes one list; each of its warps takes one cell after the other: a group of rows and a block of keys.
// The program's ranges over the cell decide most of them (generator/core/score/range_text.hpp); the others are looked at element by
// element, until one is seen and one is hidden. Both ways are exact. The compiled-in mask and window bound the blocks and are applied
// by the kernel itself. Families say which tiles they have: sm90_block_map.cuh, mma_block_map.cuh.
#pragma once

#include "cuda/attention/mask.cuh"
#include "cuda/attention/score_ranges.cuh"
#include "generated/mask_program.h"
#include "generated/mask_ranges.h"
#include "shared/block_map.h"

namespace attune {

// The tiles of a family: kGroups groups of kRows rows of kHeads heads each.
template <int kGroupRows, int kGroupCount, int kHeadCount>
struct MapTiles {
  static constexpr int kRows = kGroupRows;
  static constexpr int kGroups = kGroupCount;
  static constexpr int kHeads = kHeadCount;
};

// Which list a block of threads writes.
struct MapPlace {
  int row_block;
  int heads;  // counted in tiles; 0 where one list is for all
  int batch;  // likewise
};

template <class Tiles>
__device__ __forceinline__ MapPlace map_place(const AttentionArgs& args) {
  constexpr int kRows = Tiles::kRows * Tiles::kGroups;
  const int row_blocks = (args.seqlen_q + kRows - 1) / kRows;
  const int head_tiles = kMapByHead ? args.num_heads_q / Tiles::kHeads : 1;
  const int block = static_cast<int>(blockIdx.x);
  return {block % row_blocks, block / row_blocks % head_tiles, block / row_blocks / head_tiles};
}

// Rows and keys of one head, counted from the call's first.
struct MapCell {
  int batch;
  int head;
  IntRange rows;
  IntRange keys;
};

struct Shown {
  bool any;
  bool all;
};

// Element by element, until the answer cannot change. A lane has every 32nd key, so that what the program reads of a row is read once
// for all keys; where rows end amid a few, the last one is looked at again.
__device__ __forceinline__ Shown look_at(const ScoreArgs& scores, const MapCell& cell) {
  constexpr int kRowsBetweenVotes = 8;
  constexpr int kKeysOfLane = (kBlockN + 31) / 32;
  const int batch = scores.batch0 + cell.batch, head = scores.head0 + cell.head;
  const int kv_head = scores.kv_head0 + cell.head / kGqaRatio;
  const int first_key = cell.keys.lo + static_cast<int>(threadIdx.x % 32);
  const MaskHead on_head = mask_head(scores, batch, head, kv_head);
  const auto kv_idx = [&](int j) {
    return scores.kv_position0 + min(first_key + 32 * j, cell.keys.hi);
  };
  MaskColumn columns[kKeysOfLane];
#pragma unroll
  for (int j = 0; j < kKeysOfLane; ++j)
    columns[j] = mask_column(scores, on_head, batch, head, kv_head, kv_idx(j));
  bool any = false, all = true;
#pragma unroll 1
  for (int row = cell.rows.lo; row <= cell.rows.hi; row += kRowsBetweenVotes) {
#pragma unroll
    for (int i = 0; i < kRowsBetweenVotes; ++i) {
      const int q_idx = scores.q_position0 + min(row + i, cell.rows.hi);
      const MaskRow on_row = mask_row(scores, on_head, batch, head, kv_head, q_idx);
#pragma unroll
      for (int j = 0; j < kKeysOfLane; ++j) {
        const bool exists = first_key + 32 * j <= cell.keys.hi;
        const bool shown = mask_element(scores, on_head, on_row, columns[j], batch, head, kv_head,
                                        q_idx, kv_idx(j));
        any = any || (shown && exists);
        all = all && (shown || !exists);
      }
    }
    if (__any_sync(~0u, any) && !__all_sync(~0u, all)) return {true, false};
  }
  return {__any_sync(~0u, any) != 0, __all_sync(~0u, all) != 0};
}

// Called by all lanes of a warp.
__device__ __forceinline__ Shown shown_in(const ScoreArgs& scores, const MapCell& cell) {
  const int head = scores.head0 + cell.head, kv_head = scores.kv_head0 + cell.head / kGqaRatio;
  const IntRange q_idx{scores.q_position0 + cell.rows.lo, scores.q_position0 + cell.rows.hi};
  const IntRange kv_idx{scores.kv_position0 + cell.keys.lo, scores.kv_position0 + cell.keys.hi};
  const BoolRange range = mask_range(scores, int_range(scores.batch0 + cell.batch), int_range(head),
                                     int_range(kv_head), q_idx, kv_idx);
  if (range.lo == range.hi) return {range.hi, range.lo};
  return look_at(scores, cell);
}

template <class Tiles>
class BlockMapper {
  static constexpr int kWarps = kMapThreads / 32;
  static constexpr int kAllPartial = (1 << Tiles::kGroups) - 1;
  static_assert(Tiles::kGroups <= kMapGroupBits, "an entry has a bit for each group of rows");

 public:
  // `first_key(first_row)` is the key at which the blocks of a tile begin.
  template <class FirstKey>
  static __device__ __forceinline__ void run(const ScoreArgs& scores, const AttentionArgs& args,
                                             const BlockMapArgs& map, const FirstKey& first_key) {
    extern __shared__ int found[];  // kSeen, and the bits of the groups that see a block in part
    constexpr int kRows = Tiles::kRows * Tiles::kGroups;
    const MapPlace place = map_place<Tiles>(args);
    const int first_row = place.row_block * kRows, origin = first_key(first_row);
    const BlockMapper mapper(scores, args, place, origin);
    const BlockRange range =
        visible_blocks<kBlockN>(args, first_row, min(first_row + kRows, args.seqlen_q), origin);
    int* list = map.lists + static_cast<long long>(blockIdx.x) * map.list_words;
    const int warp = threadIdx.x / 32;
    int count = 0;
    for (int begin = range.begin; begin < range.end; begin += kMapChunk) {
      const int blocks = min(kMapChunk, range.end - begin);
      for (int i = warp; i < blocks; i += kWarps) {
        const int entry = mapper.look_up(begin + i);
        if (threadIdx.x % 32 == 0) found[i] = entry;
      }
      __syncthreads();
      if (warp == 0) count = append(found, begin, blocks, list + 1, count);
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      if (count == 0) list[1] = range.begin << kMapGroupBits | kAllPartial;
      list[0] = max(count, 1);
    }
  }

 private:
  static constexpr int kSeen = 1 << kMapGroupBits;

  // What the groups of the tile see of a block.
  __device__ __forceinline__ int look_up(int block) const {
    const int first_key = origin_ + block * kBlockN;
    const IntRange keys{first_key, min(first_key + kBlockN, args_.seqlen_kv) - 1};
    int entry = 0;
#pragma unroll 1
    for (int group = 0; group < Tiles::kGroups; ++group) {
      const int row = (place_.row_block * Tiles::kGroups + group) * Tiles::kRows;
      const IntRange rows{row, min(row + Tiles::kRows, args_.seqlen_q) - 1};
      if (rows.hi < rows.lo) break;
      Shown shown{false, true};
#pragma unroll 1
      for (int head = 0; head < (kMapByHead ? Tiles::kHeads : 1); ++head) {
        const MapCell cell{place_.batch, place_.heads * Tiles::kHeads + head, rows, keys};
        const Shown here = shown_in(scores_, cell);
        shown = {shown.any || here.any, shown.all && here.all};
      }
      if (shown.any) entry |= kSeen;
      if (!shown.all) entry |= 1 << group;
    }
    return entry;
  }

  // Entries of the blocks that are seen, behind `count` others. Called by one warp; returns how many there are then.
  static __device__ __forceinline__ int append(const int* found, int begin, int blocks,
                                               int* entries, int count) {
    const int lane = threadIdx.x % 32;
    for (int first = 0; first < blocks; first += 32) {
      const int entry = first + lane < blocks ? found[first + lane] : 0;
      const unsigned seen = __ballot_sync(~0u, entry & kSeen);
      if (entry & kSeen)
        entries[count + __popc(seen & ((1u << lane) - 1))] =
            (begin + first + lane) << kMapGroupBits | (entry & (kSeen - 1));
      count += __popc(seen);
    }
    return count;
  }

  __device__ __forceinline__ BlockMapper(const ScoreArgs& scores, const AttentionArgs& args,
                                         const MapPlace& place, int origin)
      : scores_(scores), args_(args), place_(place), origin_(origin) {}

  const ScoreArgs& scores_;
  const AttentionArgs& args_;
  MapPlace place_;
  int origin_;
};

}  // namespace attune
