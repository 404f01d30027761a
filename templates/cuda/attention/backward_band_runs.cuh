// SPDX-License-Identifier: Apache-2.0
// The walk along a narrow band (shared/backward_band_layout.h): the runs of a warpgroup, and which tiles each place of one has.
#pragma once

#include "cuda/attention/mask.cuh"
#include "cuda/attention/section_order.cuh"
#include "cuda/attention/tile_ring.cuh"
#include "shared/backward_band_layout.h"

namespace attune {

constexpr BandLayout kBandLayout = backward_band_layout();
constexpr BandWidth kBandWidth = band_width(CompiledRule());

// Places [begin, end) of a head, and the two ahead of them.
struct BandRun {
  int head;
  int batch;
  int begin;
  int end;
  int first_key;  // of tile 0 of keys
  int row_begin;  // tiles of rows that pass by
  int row_end;
  int seqlen_kv;

  __device__ __forceinline__ int first_place() const { return begin - 2; }
  __device__ __forceinline__ int key(int place) const { return first_key + place * kBandTile; }
  __device__ __forceinline__ bool has_row(int tile) const {
    return tile >= row_begin && tile < row_end;
  }
  // Whether the keys of a place are wanted: ahead of the run's, for the sake of its rows.
  __device__ __forceinline__ bool has_keys(int place) const {
    const bool some = key(place) < seqlen_kv && key(place) > -kBandTile;
    return some && (place >= begin || (place >= row_begin && place - 2 < row_end));
  }
};

// The runs of a walker, one after the other: its share of all places may be of several heads. Of an even number of heads the walkers of a block take the
// same places of two that stand side by side: of heads of 64 columns a fetch of memory brings both.
class BandRuns {
 public:
  __device__ __forceinline__ BandRuns(const AttentionArgs& args, int walker)
      : args_(args), walker_(walker) {
    const bool pairs = has_pairs(args);
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    const int shares = pairs ? blocks : blocks * kBandWalkers;
    const int number = pairs ? block : block * kBandWalkers + walker;
    const int all = pairs ? args.num_tiles / kBandWalkers : args.num_tiles;
    const int share = all / shares, more = all - share * shares;
    begin_ = share * number + min(number, more);
    end_ = begin_ + share + (number < more ? 1 : 0);
  }

  __device__ __forceinline__ bool done() const { return begin_ >= end_; }

  // The next one.
  __device__ __forceinline__ BandRun take() {
    const AttentionArgs args = reread(args_);
    const BandPlaces places = band_places(CompiledRule(), args);
    const int of_all = begin_ / places.count, from = begin_ - of_all * places.count;
    const int count = min(end_ - begin_, places.count - from);
    begin_ += count;
    BandRun run;
    const int head = has_pairs(args) ? of_all * kBandWalkers + walker_ : of_all;  // of all entries
    run.batch = head / args.num_heads_q;
    run.head = head - run.batch * args.num_heads_q;
    run.begin = places.first + from;
    run.end = run.begin + count;
    run.first_key = places.first_key;
    run.row_begin = max(0, run.first_place());
    run.row_end = min((args.seqlen_q + kBandTile - 1) / kBandTile, run.end);
    run.seqlen_kv = args.seqlen_kv;
    return run;
  }

 private:
  __device__ __forceinline__ static bool has_pairs(const AttentionArgs& args) {
    return args.num_heads_q % kBandWalkers == 0;
  }

  const AttentionArgs& args_;
  int walker_;
  int begin_, end_;  // places of all heads, or pairs
};

// One side's place in a ring of a walker's.
template <int kSlots>
class BandRing {
 public:
  // `tiles`: of slot 0; each holds two. `full`, `empty`: barriers.
  __device__ __forceinline__ BandRing(unsigned tiles, unsigned full, unsigned empty)
      : tiles_(tiles), full_(full), empty_(empty) {}

  __device__ __forceinline__ unsigned tile(unsigned number) const {
    return tiles_ + number % kSlots * 2 * kBandLayout.tile_bytes;
  }
  __device__ __forceinline__ unsigned full(unsigned number) const {
    return full_ + 8 * (number % kSlots);
  }
  __device__ __forceinline__ void await(unsigned number, const char* name) const {
    mbarrier_wait(full(number), number / kSlots & 1, name);
  }
  __device__ __forceinline__ void await_free(unsigned number, const char* name) const {
    mbarrier_wait(empty_ + 8 * (number % kSlots), (number / kSlots & 1) ^ 1, name);
  }
  // By all lanes of a warp.
  __device__ __forceinline__ void give_back(unsigned number) const {
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, empty_ + 8 * (number % kSlots));
  }

 private:
  unsigned tiles_, full_, empty_;
};

// What a walker has of shared memory.
struct BandShared {
  unsigned tiles;     // of this walker
  unsigned barriers;  // of this walker

  __device__ __forceinline__ BandShared(unsigned shared, int walker)
      : tiles(shared + walker * kBandLayout.walker_bytes),
        barriers(shared + kBandLayout.barriers + walker * kBandLayout.barrier_bytes) {}

  __device__ __forceinline__ BandRing<kBandRowSlots> rows() const {
    return {tiles + kBandLayout.rows, barriers + kBandLayout.row_full, barriers + kBandLayout.row_empty};
  }
  __device__ __forceinline__ BandRing<kBandKeySlots> keys() const {
    return {tiles + kBandLayout.keys, barriers + kBandLayout.key_full, barriers + kBandLayout.key_empty};
  }
  // L2 of a tile of rows, delta behind it.
  __device__ __forceinline__ unsigned sums(unsigned number) const {
    return tiles + kBandLayout.sums + number % kBandRowSlots * 8 * kBandTile;
  }
  // A part of a tile of o.
  __device__ __forceinline__ unsigned o(int slot) const {
    return tiles + kBandLayout.o + slot * kBandSumRows * kPanelRowBytes;
  }
  __device__ __forceinline__ unsigned o_full(int slot) const {
    return barriers + kBandLayout.o_full + 8 * slot;
  }
  __device__ __forceinline__ unsigned sums_full(unsigned number) const {
    return barriers + kBandLayout.sums_full + 8 * (number % kBandRowSlots);
  }
};

}  // namespace attune
