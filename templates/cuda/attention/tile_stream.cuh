// SPDX-License-Identifier: Apache-2.0
// Which work tiles a block takes, one after the other, and how its roles agree on them. Knob
// `scheduler`: one tile per block, static (every gridDim.x-th tile), or dynamic: drawn from a
// counter in the workspace. The producer finds out what the next tile is, divisions and all, and
// hands it to the consumers through two slots of shared memory, for they are in a hurry between
// tiles.
//
// | word of a | 0 tile    | 1 first    | 2 head | 3 batch | 4 first    | 5 last     | 6 and 7     |
// | slot      | number    | row        |        |         | block      | block      | listed_tile |
// |           |           |            |        |         |            |            | alone       |
//
// Every tile drawn is followed by one draw, so a launch draws exactly num_tiles times: whoever
// draws the last number sets the counter back to zero. It must be zero before the first launch
// only.
#pragma once

#include "cuda/attention/kv_pipeline.cuh"
#include "cuda/attention/listed_tile.cuh"  // where kMaskProgram
#include "cuda/attention/mask.cuh"
#include "cuda/attention/tile_rows.cuh"
#include "cuda/attention/tile_scheduler.cuh"
#include "cuda/attention/v_slice.cuh"  // where kVSlices
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "shared/cache_args.h"  // where kCacheArgs

namespace attune {

// Values of the knob scheduler.
enum SchedulerKind : int { kOneTile = 0, kStatic = 1, kDynamic = 2 };

// A tile of kTileRows query rows of kTileHeads heads, and the blocks of keys that this block of
// threads works through, last to first.
struct PrefillTile {
  int first_row;
  int head;  // the first one
  int batch;
  int first_block;
  int last_block;
  int number;  // tile number without the split
  int split;
  int v_column;  // where kVSlices
  bool no_keys;  // no block of its own: the one that is visited all the same does not count
  const int* last_entry;   // of the blocks, in the tile's list  // where kMaskProgram
  const CacheArgs* cache;  // where kCacheArgs
};

constexpr int kTileOrder = kL2SectionMb > 0 ? kSectionsLongestFirst : kRowsFirst;
using PrefillTiles = TileScheduler<kTileOrder, kTileRows, kL2SectionMb, kGqaRatio / kTileHeads>;

// The key at which a tile's blocks begin. With a window it is the first that the tile sees, so that
// no block is visited for the sake of where the window stands.
__device__ __forceinline__ int first_key(const AttentionArgs& args, int first_row) {
  if constexpr (!kBlocksFollowWindow || !kHasLeftLimit) return 0;
  return visible_keys(args, first_row).first / 16 * 16;  // whole cells  // where kDropout
  return visible_keys(args, first_row).first;
}

// There is always a block to visit, so that no role needs a case for tiles without keys: such tiles
// are masked as a whole.
__device__ __forceinline__ PrefillTile prefill_tile(const AttentionArgs& args, int tile) {
  AttentionArgs here =
      args;  // divisors of this tile only: their reciprocals must not stay in registers
  here.seqlen_q = reread(args.seqlen_q);
  here.num_heads_q = reread(args.num_heads_q) / kTileHeads;
  const PrefillTiles order(here);
  PrefillTile work;
  work.number = tile / kKvSplits;
  work.split = tile % kKvSplits;
  work.v_column = first_v_column(work.number);  // where kVSlices
  const Tile place = order(work.number);
  work.first_row = place.row_block * kTileRows;
  work.head = place.head * kTileHeads;
  work.batch = place.batch;
  const BlockRange range =
      visible_blocks<kBlockN>(args, work.first_row, min(work.first_row + kTileRows, args.seqlen_q),
                              first_key(args, work.first_row));
  const int blocks = range.end - range.begin;
  work.first_block = range.begin + blocks * work.split / kKvSplits;
  work.last_block = range.begin + blocks * (work.split + 1) / kKvSplits - 1;
  work.no_keys = work.last_block < work.first_block;
  if (work.no_keys) work.last_block = work.first_block;
  return work;
}

class TileStream {
 public:
  __device__ __forceinline__ TileStream(const AttentionArgs& args, unsigned shared)
      : args_(args), shared_(shared) {}

  __device__ __forceinline__ bool done() const { return number_ >= args_.num_tiles; }
  // Parity of the tile's phase on barriers that complete once per tile.
  __device__ __forceinline__ unsigned parity() const { return count_ & 1; }

  // The first tile of this block.
  __device__ __forceinline__ PrefillTile first() const { return prefill_tile(args_, number_); }

  // Tiles work through their lists in this map.
  __device__ __forceinline__ void follow(const BlockMapArgs& map) {  // where kMaskProgram
    map_ = &map;                                                     // where kMaskProgram
  }                                                                  // where kMaskProgram

  // Producer: the number of the tile after this one.
  __device__ __forceinline__ int draw() const {
    if constexpr (kScheduler == kOneTile) return args_.num_tiles;
    if constexpr (kScheduler == kStatic) return number_ + static_cast<int>(gridDim.x);
    int* counter = static_cast<int*>(args_.workspace);
    const int drawn = atomicAdd(counter, 1);
    if (drawn == args_.num_tiles - 1) atomicExch(counter, 0);
    return drawn + static_cast<int>(gridDim.x);
  }

  // Producer: moves on to tile `number`, and tells the consumers what it is.
  __device__ __forceinline__ PrefillTile publish(int number) {
    const int slot = count_ % kTileSlots;
    const unsigned parity = count_ / kTileSlots & 1;
    number_ = number;
    ++count_;
    PrefillTile tile{};
    if constexpr (kScheduler == kOneTile) return tile;
    if (!done()) tile = prefill_tile(args_, number);
    if (!done()) take_from_list(*map_, &tile);  // where kMaskProgram
    mbarrier_wait(shared_ + kLayout.tile_empty + 8 * slot, parity ^ 1, "tile_empty");
    const unsigned words = shared_ + kLayout.tiles + kTileSlotBytes * slot;
    store_shared_16(words, {{static_cast<unsigned>(number), static_cast<unsigned>(tile.first_row),
                             static_cast<unsigned>(tile.head), static_cast<unsigned>(tile.batch)}});
    store_shared_16(words + 16, {{static_cast<unsigned>(tile.first_block),
                                  static_cast<unsigned>(tile.last_block), 0u, 0u}});
    store_entries(words, tile);  // where kMaskProgram
    mbarrier_arrive(shared_ + kLayout.tile_full + 8 * slot);
    return tile;
  }

  // Consumers, all threads of whole warps: moves on to the tile that the producer published.
  __device__ __forceinline__ PrefillTile advance() {
    const int slot = count_ % kTileSlots;
    const unsigned parity = count_ / kTileSlots & 1;
    ++count_;
    PrefillTile tile{};
    if constexpr (kScheduler == kOneTile) {
      number_ = args_.num_tiles;
      return tile;
    }
    mbarrier_wait(shared_ + kLayout.tile_full + 8 * slot, parity, "tile_full");
    const unsigned words = shared_ + kLayout.tiles + kTileSlotBytes * slot;
    const Vector16 low = load_shared_16(words);
    const Vector16 high = load_shared_16(words + 16);
    number_ = uniform(low.word[0]);
    tile.v_column = first_v_column(number_ / kKvSplits);  // where kVSlices
    tile.first_row = uniform(low.word[1]);
    tile.head = uniform(low.word[2]);
    tile.batch = uniform(low.word[3]);
    tile.first_block = uniform(high.word[0]);
    tile.last_block = uniform(high.word[1]);
    tile.last_entry = entry_address(high.word[2], high.word[3]);  // where kMaskProgram
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kLayout.tile_empty + 8 * slot);
    return tile;
  }

 private:
  // The shuffle tells the compiler that all lanes agree, which keeps loops and descriptors in
  // uniform registers.
  __device__ __forceinline__ static int uniform(unsigned word) {
    return static_cast<int>(__shfl_sync(~0u, word, 0));
  }

  const AttentionArgs& args_;
  unsigned shared_;
  const BlockMapArgs* map_;  // where kMaskProgram
  int number_ = blockIdx.x;
  int count_ = 0;
};

}  // namespace attune
