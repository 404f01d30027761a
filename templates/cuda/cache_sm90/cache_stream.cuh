// SPDX-License-Identifier: Apache-2.0
// Finds the tiles of rows that a block of cache_sm90 works on. One of its warps finds them from the
// lengths in device memory, and hands each tile to the other roles through shared memory. Knob
// `scheduler`:
//
// | kDrawn  | Blocks draw whole tiles from a counter, one after the other. The heads of a request |
// |         | follow each other, its last rows first, so blocks that run at the same time read    |
// |         | the same keys. The counter is zero between launches.                                |
// | kShared | The steps of all tiles form a line, which is cut into equal ranges, one per block   |
// |         | (shared/layouts/decode_partition.h). cache_join.cuh joins tiles that are cut.       |
//
// A tile has up to kTileRows rows of a request, for kTileHeads heads that share a head of K.
#pragma once

#include "cuda/parts/listed_requests.cuh"  // where kKeyLists, else none/
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/sm90/kv_pipeline.cuh"
#include "cuda/sm90/tile_stream.cuh"

namespace attune {

// Named barriers between the warp that finds tiles and the warps that load keys. Barrier
// kBarrierFirstTile + i is for loading warp i: shared memory has a tile that is probably the first.
// Barrier kBarrierFirstRead is for all of these warps: that tile was read.
constexpr int kBarrierFirstTile = 10, kBarrierFirstRead = 12;
constexpr int kKeyWarps = 3 - kQueryWarps;

enum CacheScheduler : int { kDrawn = 2, kShared = 3 };

// Shared memory has one tile at a time, in the place of two tiles of prefill_sm90.
static_assert(kTileSlots * kTileSlotBytes >= 64, "a tile has 14 words");

struct CacheTile {
  PrefillTile place;  // batch: the request's number
  DecodeRequest request;
  int part, parts, slot;  // for a tile that is cut (DecodePiece)
  int cache_slot;         // the request's slot, if the cache has no pages
  int keys, list;         // of a row with a list: keys of its request, number of its list
};

__device__ __forceinline__ int row_tiles(const DecodeRequest& request) {
  return (request.rows + kTileRows - 1) / kTileRows;
}

// The lengths of a request that visible_keys needs.
struct CacheLengths {
  int seqlen_q, seqlen_kv;
};

// Returns the steps of a row tile, none if it sees no keys.
__device__ __forceinline__ DecodeTiles steps_of(const DecodeRequest& request, int row_tile) {
  const CacheLengths lengths{request.rows, request.length};
  const int first = row_tile * kTileRows, last = min(first + kTileRows, request.rows) - 1;
  const KeyInterval<int> keys = keys_of_rows(CompiledRule(), lengths, first, last);
  if (keys.last < keys.first) return {0, 0};
  return {keys.first / kBlockN, keys.last / kBlockN - keys.first / kBlockN + 1};
}

// Returns `word`, which must be equal in all lanes, in a uniform register, so that loops and
// descriptors stay uniform.
__device__ __forceinline__ int uniform(unsigned word) {
  return static_cast<int>(__shfl_sync(~0u, word, 0));
}

// Reads the tile that was published last. Returns false if there are no more tiles. All lanes of a
// warp call it.
__device__ __forceinline__ bool read_tile(unsigned shared, CacheTile* tile) {
  const unsigned words = shared + kLayout.tiles;
  const Vector16 low = load_shared_16(words), middle = load_shared_16(words + 16),
                 high = load_shared_16(words + 32), last = load_shared_16(words + 48);
  tile->place.first_row = uniform(low.word[1]);
  tile->place.head = uniform(low.word[2]);
  tile->place.batch = uniform(low.word[3]);
  tile->place.first_block = uniform(middle.word[0]);
  tile->place.last_block = uniform(middle.word[1]);
  tile->request = {uniform(middle.word[2]), uniform(middle.word[3]), uniform(high.word[0]),
                   uniform(last.word[1])};
  tile->part = uniform(high.word[1]);
  tile->parts = uniform(high.word[2]);
  tile->slot = uniform(high.word[3]);
  tile->cache_slot = uniform(last.word[0]);
  if constexpr (kKeyLists) {
    tile->keys = uniform(last.word[2]);
    tile->list = uniform(last.word[3]);
  }
  return uniform(low.word[0]) != 0;
}

// Runs in the warp that finds tiles. All its lanes call every function.
class CacheStream {
 public:
  template <class Lists>
  __device__ __forceinline__ CacheStream(const KernelParts& parts, const Lists& lists,
                                         unsigned shared)
      : parts_(parts), shared_(shared), requests_(line_requests(parts, lists)) {
    if constexpr (kScheduler == kDrawn) count_tiles();
  }

  // Publishes one tile after the other to the other roles, then the end of the tiles.
  __device__ __forceinline__ void run() {
    bool more = true;
    if constexpr (kScheduler == kShared) {
      // No tile was published before: nothing to wait for.
      more = first_piece();
      told_ ^= 1;
      tell(more);
    }
    while (more) {
      mbarrier_wait(shared_ + kLayout.tile_empty, told_ ^ 1, "tile_empty");
      told_ ^= 1;
      more = kScheduler == kShared ? next_piece() : next_drawn();
      tell(more);
    }
  }

 private:
  struct TileParts {
    int part, parts, slot;  // as in CacheTile
  };

  __device__ __forceinline__ void tell(bool is_tile) const {
    if (!is_tile) store(0, 0, 0, 0, 0);
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kLayout.tile_full);
  }

  __device__ __forceinline__ bool first_piece() {
    if constexpr (kKeyLists) {  // the previous grid has ended
      find_range();
      return next_piece();
    } else {
      return find_first();
    }
  }
  // Finds the first tile from the lists of requests while the previous grid may still write them,
  // so that the loading warps can prefetch its keys. If the lists have changed when that grid has
  // ended, finds it again.
  __device__ __forceinline__ bool find_first() {
#pragma unroll 1
    for (bool is_early = true;; is_early = false) {
      find_range();
      const bool found = next_piece();
      if (!is_early) return found;
      if (!found) store(0, 0, 0, 0, 0);
      __syncwarp();
      for (int i = 0; i < kKeyWarps; ++i) named_barrier_arrive(kBarrierFirstTile + i, 2 * 32);
      wait_for_prior_grid();
      named_barrier_sync(kBarrierFirstRead, 32 * (1 + kKeyWarps));
      if (requests_.still_are()) return found;
      requests_.load<true>(0);
    }
  }

  // Stores the four words of the tile from word 4 * four on, as CacheReader reads them.
  __device__ __forceinline__ void store(int four, int a, int b, int c, int d) const {
    if (threadIdx.x % 32 != 0) return;
    store_shared_16(shared_ + kLayout.tiles + 16 * four,
                    {{static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c),
                      static_cast<unsigned>(d)}});
  }
  __device__ __forceinline__ int count() const { return line_count(requests_, parts_.base); }
  __device__ __forceinline__ int groups() const { return parts_.base.num_heads_q / kTileHeads; }

  // A row with a list is a tile of its request, whose keys are the entries of the list.
  __device__ __forceinline__ void store_tile(const DecodeRequest& request, int row_tile, int group,
                                             const DecodeTiles& steps,
                                             const TileParts& of_tile) const {
    const ItemRow row(requests_, request_);
    const DecodeRequest& whole = row.whole(request);
    store(0, 1, row.row_of(row_tile * kTileRows), group * kTileHeads, row.batch_of(request_));
    store(1, steps.first, steps.first + max(steps.count, 1) - 1, whole.rows, request.length);
    store(2, whole.first_row, of_tile.part, of_tile.parts, of_tile.slot);
    store(3, row.slot_of(requests_, request_), request.first_key, row.keys(), row.list());
  }

  // Functions for kDrawn.
  __device__ __forceinline__ int own_tiles() const {
    return requests_.has_own() ? groups() * row_tiles(requests_.own()) : 0;
  }
  __device__ __forceinline__ void count_tiles() {
    const int batch = count();
    total_ = __reduce_add_sync(~0u, own_tiles());
    for (int first = 32; first < batch; first += 32) {
      requests_.load<true>(first);
      total_ += __reduce_add_sync(~0u, own_tiles());
    }
  }
  // Every tile is followed by one draw. The block that draws the last number resets the counter.
  __device__ __forceinline__ bool next_drawn() {
    if (number_ < 0) {
      number_ = static_cast<int>(blockIdx.x);
    } else {
      int drawn = 0;
      if (threadIdx.x % 32 == 0) {
        int* const counter = static_cast<int*>(parts_.base.workspace);
        drawn = atomicAdd(counter, 1);
        if (drawn == total_ - 1) atomicExch(counter, 0);
      }
      number_ = __shfl_sync(~0u, drawn, 0) + static_cast<int>(gridDim.x);
    }
    return number_ < total_ && find_tile();
  }
  // Finds the tile of number_. Numbers only grow, so the search goes on from its last place.
  __device__ __forceinline__ bool find_tile() {
    const int lane = threadIdx.x % 32;
    for (; first_ < count(); first_ += 32) {
      requests_.load(first_);  // loads again: too few registers are left to keep them
      const int own = own_tiles(), before = before_ + sum_of_lanes_before(own, lane);
      const unsigned found = __ballot_sync(~0u, number_ < before + own);
      if (found == 0) {
        before_ = __shfl_sync(~0u, before + own, 31);
        continue;
      }
      const int owner = __ffs(static_cast<int>(found)) - 1;
      const int at = number_ - __shfl_sync(~0u, before, owner);
      request_ = first_ + owner;
      const DecodeRequest request = requests_[request_];
      const int tiles = row_tiles(request), group = at / tiles;
      const int row_tile = tiles - 1 - (at - group * tiles);
      store_tile(request, row_tile, group, steps_of(request, row_tile), {0, 1, 0});
      return true;
    }
    return false;
  }

  // Functions for kShared. A unit of the line is a row tile of a request; the heads of the tile
  // follow each other.
  __device__ __forceinline__ int own_cost() const {
    if (!requests_.has_own()) return 0;
    const DecodeRequest& request = requests_.own();
    const int tiles = row_tiles(request);
    if constexpr (!kHasLeftLimit && !kHasRightLimit)
      return tiles * range_.cost(steps_of(request, 0));
    if (range_.even > 0) return tiles * range_.cost({0, 0});
    int cost = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) cost += range_.cost(steps_of(request, tile));
    return cost;
  }
  // Returns the largest number of steps of a row tile of this lane's request. The last rows see the
  // most keys, except with a window.
  __device__ __forceinline__ int own_most() const {
    if (!requests_.has_own() || requests_.own().rows <= 0) return 0;
    return steps_of(requests_.own(), row_tiles(requests_.own()) - 1).count;
  }
  __device__ __forceinline__ void find_range() {
    const int lane = threadIdx.x % 32, batch = count();
    range_.tile_overhead = kTileOverhead;
    range_.items = groups();
    range_.even = 0;
    request_ = unit_ = row_tile_ = 0;
    int total = 0, count = 0, most = 0;
    for (int first = 0; first < batch; first += 32) {
      if (first > 0) requests_.load<true>(first);
      total += __reduce_add_sync(~0u, own_cost());
      count += __reduce_add_sync(~0u, requests_.has_own() ? row_tiles(requests_.own()) : 0);
      most = max(most, __reduce_max_sync(~0u, own_most()));
    }
    const int workers = static_cast<int>(gridDim.x), number = static_cast<int>(blockIdx.x);
    if constexpr (kHasLeftLimit)
      range_.take(total, workers, kMinTiles, number);
    else
      range_.take_alike(total, count * range_.items, most, workers, kMinTiles, kTileOverhead + 1,
                        number);
    walk_ = {0, 0, range_.end};
    for (int first = 0; first < batch && range_.begin < range_.end; first += 32) {
      if (batch > 32) requests_.load<true>(first);
      const int cost = own_cost(), before = walk_.start + sum_of_lanes_before(cost, lane);
      const unsigned found = __ballot_sync(~0u, range_.begin < before + cost);
      if (found != 0) {
        const int owner = __ffs(static_cast<int>(found)) - 1;
        walk_ = {0, __shfl_sync(~0u, before, owner), range_.begin};
        request_ = first + owner;
        return;
      }
      walk_.start = __shfl_sync(~0u, before + cost, 31);
    }
  }
  // Returns the steps of `unit`: the unit of the call before, or the next. Requests without rows
  // have no units.
  __device__ __forceinline__ DecodeTiles steps_of_unit(int unit) {
    DecodeRequest request = requests_[request_];
    if (unit != unit_) {
      unit_ = unit;
      ++row_tile_;
      while (row_tile_ >= row_tiles(request)) {
        if (++request_ >= count()) {
          request_ = count() - 1;
          return {0, 0};
        }
        row_tile_ = 0;
        request = requests_[request_];
      }
    }
    return steps_of(request, row_tile_);
  }
  __device__ __forceinline__ bool next_piece() {
    DecodePiece piece;
    if (!walk_.next(
            range_, 0x7fffffff, [&](int unit) { return steps_of_unit(unit); }, &piece))
      return false;
    const DecodeRequest request = requests_[request_];
    store_tile(request, row_tile_, piece.item, {piece.begin, piece.end - piece.begin},
               {piece.part, piece.parts, piece.slot});
    return true;
  }

  const KernelParts& parts_;
  unsigned shared_;
  LineRequests requests_;
  int request_ = 0;
  unsigned told_ = 0;                                     // parity of the last published tile
  int number_ = -1, total_ = 0, first_ = 0, before_ = 0;  // kDrawn
  DecodeRange range_;                                     // kShared, as are all members below
  DecodeWalk walk_;
  int unit_ = 0, row_tile_ = 0;
};

// Reads the published tiles in the other roles. Whole warps call it.
class CacheReader {
 public:
  __device__ __forceinline__ explicit CacheReader(unsigned shared) : shared_(shared) {}

  // Returns the parity of the tile read last, for barriers that complete once per tile.
  __device__ __forceinline__ unsigned parity() const { return told_ ^ 1; }

  // Reads the next tile. Returns false if there is none.
  __device__ __forceinline__ bool next(CacheTile* tile) {
    mbarrier_wait(shared_ + kLayout.tile_full, told_, "tile_full");
    told_ ^= 1;
    const bool is_tile = read_tile(shared_, tile);
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kLayout.tile_empty);
    return is_tile;
  }

 private:
  unsigned shared_;
  unsigned told_ = 0;
};

}  // namespace attune
