// SPDX-License-Identifier: Apache-2.0
// The walk along a narrow band (shared/layouts/backward_band_layout.h): the runs of a warpgroup,
// and its part of shared memory.
#pragma once

#include "cuda/backward_sm90/tile_ring.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/parts/section_order.cuh"
#include "shared/layouts/backward_band_layout.h"

namespace attune {

constexpr BandLayout kBandLayout = backward_band_layout();
constexpr BandWidth kBandWidth = band_width(CompiledRule());

// Iterates over the runs of a walker.
class BandRuns {
 public:
  __device__ __forceinline__ BandRuns(const AttentionArgs& args, int walker)
      : args_(args),
        walker_(walker),
        left_(band_share(args.num_tiles, args.num_heads_q, static_cast<int>(gridDim.x),
                         static_cast<int>(blockIdx.x), walker)) {}

  __device__ __forceinline__ bool done() const { return left_.begin >= left_.end; }

  __device__ __forceinline__ BandRun take() {
    const AttentionArgs args = reread(args_);
    const BandRun run = band_run(CompiledRule(), args, args.num_heads_q, left_, walker_);
    left_.begin += run.end - run.begin;
    return run;
  }

 private:
  const AttentionArgs& args_;
  int walker_;
  BandShare left_;
};

// A ring of a walker: the tiles and barriers of its slots.
template <int kSlots>
class BandRing {
 public:
  // `tiles`: the address of slot 0; each slot holds two tiles. `full`, `empty`: slot 0's barriers.
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
  // Releases the slot. All lanes of a warp call it.
  __device__ __forceinline__ void give_back(unsigned number) const {
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, empty_ + 8 * (number % kSlots));
  }

 private:
  unsigned tiles_, full_, empty_;
};

// A walker's part of shared memory.
struct BandShared {
  unsigned tiles;     // address of this walker's tiles
  unsigned barriers;  // address of this walker's barriers

  __device__ __forceinline__ BandShared(unsigned shared, int walker)
      : tiles(shared + walker * kBandLayout.walker_bytes),
        barriers(shared + kBandLayout.barriers + walker * kBandLayout.barrier_bytes) {}

  __device__ __forceinline__ BandRing<kBandRowSlots> rows() const {
    return {tiles + kBandLayout.rows, barriers + kBandLayout.row_full,
            barriers + kBandLayout.row_empty};
  }
  __device__ __forceinline__ BandRing<kBandKeySlots> keys() const {
    return {tiles + kBandLayout.keys, barriers + kBandLayout.key_full,
            barriers + kBandLayout.key_empty};
  }
  // Returns the address of L2 of a tile of rows; delta follows L2.
  __device__ __forceinline__ unsigned sums(unsigned number) const {
    return tiles + kBandLayout.sums + number % kBandRowSlots * 8 * kBandTile;
  }
  // Returns the address of a slot, which holds a part of a tile of o.
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
