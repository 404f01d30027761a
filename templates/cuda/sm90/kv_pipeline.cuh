// SPDX-License-Identifier: Apache-2.0
// The slots through which K and V tiles go from the producer to the consumers, and the mbarriers
// that guard them.
//
//   producer, one thread:      wait empty[slot], announce bytes on full[slot], TMA
//   consumer, lane 0 of warps: wait full[slot], wgmma reads the slot, arrive on empty[slot]
//
// Both sides walk the slots in the same order and never reset: `parity` flips at each wrap. The
// producer waits for the opposite parity, so its first round passes. K and V have separate
// barriers, so the consumer releases K right after Q K.
#pragma once

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/sm90_layout.cuh"

namespace attune {

// Slot and parity in one register.
template <int kSlots>
class SlotCursor {
 public:
  __device__ __forceinline__ int slot() const { return state_ >> 1; }
  __device__ __forceinline__ unsigned parity() const { return state_ & 1; }
  __device__ __forceinline__ void advance() {
    state_ += 2;
    if (state_ >= 2 * kSlots) state_ = (state_ - 2 * kSlots) ^ 1;
  }

 private:
  int state_ = 0;
};

// Positions of one side. With one ring, K and V tiles alternate through the same slots.
struct KvCursors {
  SlotCursor<kLayout.k_slots> k;
  SlotCursor<(kKvRing > 0 ? 1 : kLayout.v_slots)> own_v;

  __device__ __forceinline__ auto& v() {
    if constexpr (kKvRing > 0) {
      return k;
    } else {
      return own_v;
    }
  }
};

// A consumer's place among the slots. It holds the values that the next step needs at once: the
// address of the barrier, the low half of the tile's descriptor, and the parity.
template <int kSlots, int kSlotBytes>
class SlotWalk {
 public:
  __device__ __forceinline__ SlotWalk(unsigned first_full, unsigned first_tile)
      : end_(first_full + 8 * kSlots), full_(first_full), tile_(first_tile) {}

  __device__ __forceinline__ unsigned full() const { return full_; }
  __device__ __forceinline__ unsigned empty() const { return full_ + 8 * kSlots; }
  __device__ __forceinline__ unsigned tile() const { return tile_; }
  __device__ __forceinline__ unsigned parity() const { return parity_; }
  __device__ __forceinline__ void advance() {
    full_ += 8;
    tile_ += kSlotBytes / 16;
    if (full_ == end_) {
      full_ -= 8 * kSlots;
      tile_ -= kSlots * kSlotBytes / 16;
      parity_ ^= 1;
    }
  }

 private:
  unsigned end_;
  unsigned full_;
  unsigned tile_;
  unsigned parity_ = 0;
};

constexpr int kConsumerWarps = 4 * kConsumers;
// Arrivals that complete a tile of Q: of TMA, or of the warps that copy rows of Q from a cache's
// requests. With latent attention Q has 72 KB, which two warps copy, unless one of them gathers
// keys.
constexpr int kQueryWarps = kMla && (!kGathersKeys || kConvertsKeys) ? 2 : 1;
constexpr int kGatherWarps =  // if keys are gathered
    kConvertsKeys ? kThreads / 32 - 4 * (kConsumers + 1) : 2;
// Arrivals that complete a slot of K: of TMA; of the warps that transpose diagonal terms; of the
// warps that convert keys; of the two warps that gather keys, whose lanes arrive when their copies
// have, and again with a list.
constexpr int kKeyArrivals = kConvertsKeys    ? kGatherWarps
                             : kGathersKeys   ? 2 * (kKeyLists ? 33 : 32)
                             : kDiagonalTerms ? 1 + kIdleWarps
                                              : 1;

// Warps besides the consumers that read tiles of a cache's requests.
constexpr int kOtherReaders = !kCacheArgs     ? 0
                              : kConvertsKeys ? kGatherWarps + kQueryWarps
                                              : kIdleWarps;

__device__ __forceinline__ void init_barriers(unsigned shared) {
  for (int i = 0; i < kWarpgroups; ++i) {
    mbarrier_init(shared + kLayout.q_full + 8 * i, kQueryWarps);
    mbarrier_init(shared + kLayout.q_empty + 8 * i, kWarpgroupThreads / 32);
  }
  for (int i = 0; i < kLayout.k_slots; ++i) {
    mbarrier_init(shared + kLayout.k_full + 8 * i, kKeyArrivals);
    mbarrier_init(shared + kLayout.k_empty + 8 * i, kConsumerWarps);
  }
  for (int i = 0; i < kLayout.v_slots; ++i) {
    mbarrier_init(shared + kLayout.v_full + 8 * i, kTransposeInside ? kIdleWarps : 1);
    mbarrier_init(shared + kLayout.v_empty + 8 * i, kConsumerWarps);
  }
  for (int i = 0; i < kTileSlots; ++i) {
    mbarrier_init(shared + kLayout.tile_full + 8 * i, 1);
    mbarrier_init(shared + kLayout.tile_empty + 8 * i, kConsumerWarps + kOtherReaders);
  }
  if constexpr (kTransposeInside) {
    for (int i = 0; i < kLayout.v_slots; ++i) {
      mbarrier_init(shared + kLayout.given_full + 8 * i, 1);
      mbarrier_init(shared + kLayout.given_empty + 8 * i, kIdleWarps);
      mbarrier_init(shared + kLayout.stop + 8 * i, 1);
    }
  }
  fence_mbarrier_init();
}

// Loads adjacent panels of kRows x kRowBytes of one operand, from `column` on, into consecutive
// panels of shared memory. A panel there has room for kRoom rows.
template <int kPanels, int kRows, int kRowBytes, int kRoom = kRows>
__device__ __forceinline__ void load_panels(unsigned shared_address, const TensorMap& map,
                                            unsigned full, int column, int row, int head,
                                            int batch) {
  mbarrier_arrive_expect_tx(full, kPanels * kRows * kRowBytes);
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
    tma_load(shared_address + panel * kRoom * kRowBytes, map, full,
             {column + panel * kRowBytes / kOperandBytes, row, head, batch});
}

}  // namespace attune
