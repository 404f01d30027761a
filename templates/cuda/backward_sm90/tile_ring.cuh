// SPDX-License-Identifier: Apache-2.0
// The shared-memory rings through which tiles stream from the producer to the consumers of
// gradients on Hopper, and the tiles that stay. The mbarriers work as in kv_pipeline.cuh.
//
//   producer, one thread:      wait empty[slot], announce bytes on full[slot], copy
//   consumer, lane 0 of warps: wait full[slot], wgmma reads the slot, arrive on empty[slot]
#pragma once

#include "cuda/backward_sm90/layout.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma_fence.cuh"

namespace attune {

// A slot that a consumer holds until give_back().
struct RingSlot {
  unsigned tile;   // shared address
  unsigned empty;  // barrier
};

// One side's place in a ring.
template <const BackwardSm90Ring& kRing>
class TileRing {
 public:
  __device__ __forceinline__ explicit TileRing(unsigned shared) : shared_(shared) {}

  __device__ __forceinline__ RingSlot take() {
    mbarrier_wait(full(), parity(), "ring full");
    const RingSlot taken{tile(), empty()};
    advance();
    return taken;
  }

  // Returns the address of the statistics of the slot that is taken next.
  __device__ __forceinline__ unsigned statistics() const {
    return shared_ + kRing.statistics + slot() * kRing.statistics_bytes;
  }

  // Called by the producer: waits until the next slot is free, and returns the barrier on which to
  // announce the next tile.
  __device__ __forceinline__ unsigned await_free() const {
    mbarrier_wait(empty(), parity() ^ 1, "ring empty");
    return full();
  }
  __device__ __forceinline__ unsigned tile() const {
    return shared_ + kRing.tiles + slot() * kRing.slot_bytes;
  }
  __device__ __forceinline__ void advance() {
    state_ += 2;
    if (state_ >= 2 * kRing.slots) state_ = (state_ - 2 * kRing.slots) ^ 1;
  }

 private:
  __device__ __forceinline__ unsigned full() const { return shared_ + kRing.full + 8 * slot(); }
  __device__ __forceinline__ unsigned empty() const { return shared_ + kRing.empty + 8 * slot(); }

  __device__ __forceinline__ int slot() const { return state_ >> 1; }
  __device__ __forceinline__ unsigned parity() const { return state_ & 1; }

  unsigned shared_;
  int state_ = 0;  // slot and parity
};

// Releases the slot. All lanes of a warp call it once no lane reads the slot any more.
__device__ __forceinline__ void give_back(const RingSlot& slot) {
  __syncwarp();
  mbarrier_arrive_if(threadIdx.x % 32 == 0, slot.empty);
}

// Releases a slot whose statistics the lanes have loaded. The fence completes these loads first;
// otherwise a bulk copy may overwrite the slot before they read it. This was observed: while
// another warpgroup's products take all bandwidth of shared memory, the arrival on the barrier
// overtakes waiting loads.
__device__ __forceinline__ void give_back_loaded(const RingSlot& slot) {
  fence_proxy_async();
  give_back(slot);
}

__device__ __forceinline__ void init_ring(unsigned shared, const BackwardSm90Ring& ring,
                                          int consumer_warps) {
  for (int i = 0; i < ring.slots; ++i) {
    mbarrier_init(shared + ring.full + 8 * i, ring.statistics_bytes > 0 ? 2 : 1);
    mbarrier_init(shared + ring.empty + 8 * i, consumer_warps);
  }
}

// Initialises the barriers. All threads of a block call it. `first_readers` arrivals release a tile
// of the first operand that stays.
__device__ __forceinline__ void init_barriers(unsigned shared, const BackwardSm90Layout& layout,
                                              int first_readers = 1) {
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle pattern repeats every 1024 bytes
    const int warps = layout.warpgroups * kWarpgroupThreads / 32;
    for (int i = 0; i < 4 * layout.warpgroups; ++i)
      mbarrier_init(shared + layout.first_full + 8 * i,
                    i / layout.warpgroups == 1 ? first_readers : 1);
    init_ring(shared, layout.first_ring, warps);
    init_ring(shared, layout.second_ring, warps);
    fence_mbarrier_init();
  }
  __syncthreads();
}

// Loads adjacent panels of kRows x 64 columns of one operand into consecutive panels of shared
// memory.
template <int kPanels, int kRows>
__device__ __forceinline__ void load_tile(unsigned shared_address, const TensorMap& map,
                                          unsigned full, int row, int head, int batch) {
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
    tma_load(shared_address + panel * kRows * kPanelRowBytes, map, full,
             {panel * kPanelColumns, row, head, batch});
}

// Loads the tiles that stay, one per warpgroup, from row `row` on. Each load waits until its
// warpgroup has released its previous tile.
template <int kPanels, int kWarpgroups>
__device__ __forceinline__ void load_staying(unsigned shared_address, int warpgroup_bytes,
                                             const TensorMap& map, unsigned full, unsigned empty,
                                             unsigned parity, int row, int head, int batch) {
#pragma unroll
  for (int i = 0; i < kWarpgroups; ++i) {
    mbarrier_wait(empty + 8 * i, parity ^ 1, "staying empty");
    mbarrier_arrive_expect_tx(full + 8 * i, kPanels * kWarpgroupRows * kPanelRowBytes);
    load_tile<kPanels, kWarpgroupRows>(shared_address + i * warpgroup_bytes, map, full + 8 * i,
                                       row + i * kWarpgroupRows, head, batch);
  }
}

// Counts the tiles of a persistent block. Each round has gridDim.x tiles; a block takes number
// blockIdx.x, counted from the end in every other round. So a block with a longer tile in one round
// gets a shorter one in the next.
class TileNumbers {
 public:
  __device__ __forceinline__ int number() const {
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    return round_ * blocks + (round_ % 2 == 0 ? block : blocks - 1 - block);
  }
  __device__ __forceinline__ void advance() { ++round_; }
  // Returns the parity of the phase of barriers that complete once per tile.
  __device__ __forceinline__ unsigned parity() const { return round_ & 1; }

 private:
  int round_ = 0;
};

// The blocks [begin, end) of a tile of which a warpgroup sees some part.
struct OwnBlocks {
  int begin;
  int end;
};

__device__ __forceinline__ OwnBlocks own_blocks(const BlockRange& tile, const BlockRange& own) {
  const int begin = max(tile.begin, min(own.begin, tile.end));
  return {begin, max(begin, min(own.end, tile.end))};
}

// Skips `steps` steps: takes their slots and releases them.
template <class First, class Second>
__device__ __forceinline__ void skip_steps(First& first, Second& second, int steps) {
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    give_back(first.take());
    give_back(second.take());
  }
}

// Return the wgmma descriptors of 16-bit tiles; by_columns needs the tile's rows, kRows.
__device__ __forceinline__ unsigned long long by_rows(unsigned tile) {
  return wgmma_descriptor<kPanelRowBytes>(wgmma_descriptor_low(tile, 0));
}
template <int kRows>
__device__ __forceinline__ unsigned long long by_columns(unsigned tile) {
  return wgmma_descriptor<kPanelRowBytes>(wgmma_descriptor_low(tile, kRows * kPanelRowBytes));
}

}  // namespace attune
