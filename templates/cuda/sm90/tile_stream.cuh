// SPDX-License-Identifier: Apache-2.0
// Finds the work tiles of a block, one after the other, and passes them between the block's roles.
// Knob `scheduler`: one tile per block, static (every gridDim.x-th tile), or dynamic (drawn from a
// counter in the workspace). The producer computes the next tile, with all divisions, and passes it
// to the consumers through two slots of shared memory. This saves consumers time between tiles.
//
// | word of a | 0 tile    | 1 first    | 2 head | 3 batch | 4 first    | 5 last     | 6 and 7     |
// | slot      | number    | row        |        |         | block      | block      | only with   |
// |           |           |            |        |         |            |            | listed_tile |
//
// Each tile is followed by one draw, so a launch draws exactly num_tiles times. The block that
// draws the last number resets the counter to zero. So the counter must be zero only before the
// first launch.
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/parts/v_slice.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/sm90/kv_pipeline.cuh"
#include "cuda/sm90/listed_tile.cuh"  // where kMaskProgram, else none/
#include "cuda/sm90/tile_rows.cuh"

namespace attune {

// Values of the knob scheduler.
enum SchedulerKind : int { kOneTile = 0, kStatic = 1, kDynamic = 2 };

// A tile of kTileRows query rows of kTileHeads heads, and the blocks of keys that this thread block
// visits, last to first.
struct PrefillTile {
  int first_row;
  int head;  // the first head
  int batch;
  int first_block;
  int last_block;
  int number;  // tile number without the split
  int split;
  int v_column;  // of the first column of V and O
  bool no_keys;  // the tile has no keys: one block is visited, but its result does not count
  const int* last_entry;  // of the blocks, in the tile's list if it has one
  const CacheArgs* cache;
};

constexpr int kTileOrder = kL2SectionMb > 0 ? kSectionsLongestFirst : kRowsFirst;
using PrefillTiles = TileScheduler<kTileOrder, kTileRows, kL2SectionMb, kGqaRatio / kTileHeads>;

// Returns the key at which a tile's blocks begin. With a window this is the first key that the tile
// sees, so that the window's position costs no extra block.
__device__ __forceinline__ int first_key(const AttentionArgs& args, int first_row) {
  if constexpr (!kBlocksFollowWindow || !kHasLeftLimit) return 0;
  const int first = visible_keys(args, first_row).first;
  return kDropout ? first / 16 * 16 : first;  // dropout draws whole cells of 16 keys
}

// Returns the tile of number `tile`. A tile without keys also gets one block, all of which is
// masked, so that no role needs a special case.
__device__ __forceinline__ PrefillTile prefill_tile(const AttentionArgs& args, int tile) {
  AttentionArgs here =
      args;  // a copy for this tile: reciprocals of its divisors must not stay in registers
  here.seqlen_q = reread(args.seqlen_q);
  here.num_heads_q = reread(args.num_heads_q) / kTileHeads;
  const PrefillTiles order(here);
  PrefillTile work;
  work.number = tile / kKvSplits;
  work.split = tile % kKvSplits;
  work.v_column = first_v_column(work.number);
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
  __device__ __forceinline__ TileStream(const KernelParts& parts, unsigned shared)
      : args_(parts.base), map_(parts.map), shared_(shared) {}

  __device__ __forceinline__ bool done() const { return number_ >= args_.num_tiles; }
  // Returns the parity of the tile's phase on barriers that complete once per tile.
  __device__ __forceinline__ unsigned parity() const { return count_ & 1; }

  // Returns the first tile of this block.
  __device__ __forceinline__ PrefillTile first() const {
    PrefillTile tile = prefill_tile(args_, number_);
    if (!done()) take_from_list(map_, &tile);
    return tile;
  }

  // Called by the producer: returns the number of the tile after this one.
  __device__ __forceinline__ int draw() const {
    if constexpr (kScheduler == kOneTile) return args_.num_tiles;
    if constexpr (kScheduler == kStatic) return number_ + static_cast<int>(gridDim.x);
    int* counter = static_cast<int*>(args_.workspace);
    const int drawn = atomicAdd(counter, 1);
    if (drawn == args_.num_tiles - 1) atomicExch(counter, 0);
    return drawn + static_cast<int>(gridDim.x);
  }

  // Called by the producer: moves on to tile `number` and publishes it to the consumers.
  __device__ __forceinline__ PrefillTile publish(int number) {
    const int slot = count_ % kTileSlots;
    const unsigned parity = count_ / kTileSlots & 1;
    number_ = number;
    ++count_;
    PrefillTile tile{};
    if constexpr (kScheduler == kOneTile) return tile;
    if (!done()) tile = prefill_tile(args_, number);
    if (!done()) take_from_list(map_, &tile);
    mbarrier_wait(shared_ + kLayout.tile_empty + 8 * slot, parity ^ 1, "tile_empty");
    const unsigned words = shared_ + kLayout.tiles + kTileSlotBytes * slot;
    store_shared_16(words, {{static_cast<unsigned>(number), static_cast<unsigned>(tile.first_row),
                             static_cast<unsigned>(tile.head), static_cast<unsigned>(tile.batch)}});
    store_shared_16(words + 16, {{static_cast<unsigned>(tile.first_block),
                                  static_cast<unsigned>(tile.last_block), 0u, 0u}});
    store_entries(words, tile);
    mbarrier_arrive(shared_ + kLayout.tile_full + 8 * slot);
    return tile;
  }

  // Called by all threads of the consumers' warps: moves on to the tile that the producer
  // published.
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
    tile.v_column = first_v_column(number_ / kKvSplits);
    tile.first_row = uniform(low.word[1]);
    tile.head = uniform(low.word[2]);
    tile.batch = uniform(low.word[3]);
    tile.first_block = uniform(high.word[0]);
    tile.last_block = uniform(high.word[1]);
    tile.last_entry = entry_address(high.word[2], high.word[3]);
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
  Reference<BlockMapArgs> map_;
  unsigned shared_;
  int number_ = blockIdx.x;
  int count_ = 0;
};

}  // namespace attune
