// SPDX-License-Identifier: Apache-2.0
// Which work tiles a block takes, one after the other, and how its roles agree on them. Knob
// `scheduler`: one tile per block, static (every gridDim.x-th tile), or dynamic: the producer draws
// the next tile from a counter in the workspace and hands it to the consumers through two slots of
// shared memory.
//
// Every tile drawn is followed by one draw, so a launch draws exactly num_tiles times: whoever
// draws the last number sets the counter back to zero. It must be zero before the first launch
// only.
#pragma once

#include "cuda/attention/kv_pipeline.cuh"
#include "cuda/attention/mask.cuh"
#include "cuda/attention/tile_scheduler.cuh"
#include "cuda/ptx/shared_word.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

// Values of the knob scheduler.
enum SchedulerKind : int { kOneTile = 0, kStatic = 1, kDynamic = 2 };

class TileStream {
 public:
  __device__ __forceinline__ TileStream(const AttentionArgs& args, unsigned shared)
      : args_(args), shared_(shared) {}

  __device__ __forceinline__ bool done() const { return tile_ >= args_.num_tiles; }
  __device__ __forceinline__ int tile() const { return tile_; }
  // Parity of the tile's phase on barriers that complete once per tile.
  __device__ __forceinline__ unsigned parity() const { return count_ & 1; }

  // The tile after this one.
  __device__ __forceinline__ int draw() const {
    if constexpr (kScheduler == kOneTile) return args_.num_tiles;
    if constexpr (kScheduler == kStatic) return tile_ + static_cast<int>(gridDim.x);
    int* counter = static_cast<int*>(args_.workspace);
    const int drawn = atomicAdd(counter, 1);
    if (drawn == args_.num_tiles - 1) atomicExch(counter, 0);
    return drawn + static_cast<int>(gridDim.x);
  }

  // Producer: tells the consumers.
  __device__ __forceinline__ void publish(int next) {
    if constexpr (kScheduler == kDynamic) {
      mbarrier_wait(shared_ + kLayout.tile_empty + 8 * slot(), slot_parity() ^ 1, "tile_empty");
      store_shared_word(shared_ + kLayout.tiles + 4 * slot(), next);
      mbarrier_arrive(shared_ + kLayout.tile_full + 8 * slot());
    }
  }

  __device__ __forceinline__ void move_to(int next) {
    tile_ = next;
    ++count_;
  }

  // Consumer: all threads of whole warps.
  __device__ __forceinline__ void advance() {
    int next;
    if constexpr (kScheduler == kDynamic) {
      mbarrier_wait(shared_ + kLayout.tile_full + 8 * slot(), slot_parity(), "tile_full");
      // The shuffle tells the compiler that all lanes agree, which keeps loops and descriptors in
      // uniform registers.
      next = __shfl_sync(~0u, load_shared_word(shared_ + kLayout.tiles + 4 * slot()), 0);
      __syncwarp();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(shared_ + kLayout.tile_empty + 8 * slot());
    } else {
      next = draw();
    }
    move_to(next);
  }

 private:
  __device__ __forceinline__ int slot() const { return count_ % kTileSlots; }
  __device__ __forceinline__ unsigned slot_parity() const { return count_ / kTileSlots & 1; }

  const AttentionArgs& args_;
  unsigned shared_;
  int tile_ = blockIdx.x;
  int count_ = 0;
};

// A tile of kBlockM query rows of one head, and the blocks of keys that this block of threads works
// through, last to first.
struct PrefillTile {
  int first_row;
  int head;
  int batch;
  int first_block;
  int last_block;
  int number;  // tile number without the split
  int split;
  bool no_keys;  // no block of its own: the one that is visited all the same does not count
};

constexpr int kTileOrder = kL2SectionMb > 0 ? kSectionsLongestFirst : kRowsFirst;
using PrefillTiles = TileScheduler<kTileOrder, kBlockM, kL2SectionMb>;

// There is always a block to visit, so that no role needs a case for tiles without keys: such tiles
// are masked as a whole.
__device__ __forceinline__ PrefillTile prefill_tile(const AttentionArgs& args, int tile) {
  AttentionArgs here =
      args;  // divisors of this tile only: their reciprocals must not stay in registers
  here.seqlen_q = anew(args.seqlen_q);
  here.num_heads_q = anew(args.num_heads_q);
  const PrefillTiles order(here);
  PrefillTile work;
  work.number = tile / kKvSplits;
  work.split = tile % kKvSplits;
  const Tile place = order(work.number);
  work.first_row = place.row_block * kBlockM;
  work.head = place.head;
  work.batch = place.batch;
  const BlockRange range =
      visible_blocks<kBlockN>(args, work.first_row, min(work.first_row + kBlockM, args.seqlen_q));
  const int blocks = range.end - range.begin;
  work.first_block = range.begin + blocks * work.split / kKvSplits;
  work.last_block = range.begin + blocks * (work.split + 1) / kKvSplits - 1;
  work.no_keys = work.last_block < work.first_block;
  if (work.no_keys) work.last_block = work.first_block;
  return work;
}

}  // namespace attune
