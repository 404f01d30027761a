// SPDX-License-Identifier: Apache-2.0
// Loads keys and values of caches through TMA, into the slots of K and of V. A step is loaded in
// boxes, each of which lies in one page.
//
// Boxes after a request's last key are not loaded, nor are their page ids read. Their shared memory
// may hold any bits: the scores of these keys are hidden, and their values are cleared
// (WgmmaProducts::clear_values).
#pragma once

#include "cuda/cache_sm90/cache_stream.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/l2_policy.cuh"

namespace attune {

constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

// The rows of a box, and the number of boxes of a step.
constexpr int kBoxRows = kHasPages ? common_divisor(kPageRows, kBlockN) : kBlockN;
constexpr int kBoxes = kBlockN / kBoxRows;
static_assert(kBoxes <= 32 && kBoxRows % 8 == 0, "a lane has a box of whole swizzle periods");

// Loads K or V of every step, in one warp per operand. A lane keeps the page of its box in a
// register until lane 0 has issued all boxes.
template <bool kIsV>
class CacheLoads {
  static constexpr int kPanels = kIsV ? kLayout.panels_v : kLayout.panels_qk;
  // Slots of a step.
  static constexpr int kParts = kMla ? kMlaLayout.slots_of_step : 1;
  static constexpr int kPartPanels = (kPanels + kParts - 1) / kParts;

 public:
  __device__ __forceinline__ CacheLoads(const KernelParts& parts, const TensorMap& map,
                                        unsigned shared)
      : parts_(parts), map_(map), shared_(shared) {}

  __device__ __forceinline__ void run() {
    CacheReader tiles(shared_);
    CacheTile tile;
    if constexpr (kScheduler == kShared) {
      named_barrier_sync(kBarrierFirstTile + (kIsV ? 1 : 0), 2 * 32);
      const bool is_tile = read_tile(shared_, &tile);
      named_barrier_arrive(kBarrierFirstRead, 32 * (1 + kKeyWarps));
      if (is_tile) prefetch(tile);
    }
    while (tiles.next(&tile)) {
      begin(tile);
      load_all(tile.place.first_block, tile.place.last_block);
    }
    let_next_grid_start();
  }

 private:
  // Prefetches the keys of a tile's first step into the L2 cache.
  __device__ __forceinline__ void prefetch(const CacheTile& tile) {
    begin(tile);
    const int block = tile.place.last_block, own = inside(page_of<true>(block));
#pragma unroll 1
    for (int box = 0; box < kBoxes && key_of(block, box) < length_; ++box) {
      const TensorCoord at = box_at(block, box, __shfl_sync(~0u, own, box));
      if (threadIdx.x % 32 < kPanels)
        tma_prefetch(
            map_, {static_cast<int>(threadIdx.x) % 32 * kPanelColumns, at.row, at.head, at.batch});
    }
  }

  __device__ __forceinline__ void begin(const CacheTile& tile) {
    length_ = tile.request.length;
    first_key_ = tile.request.first_key;
    head_ = tile.place.head / kGqaRatio;
    if constexpr (kHasPages)
      table_ = parts_.cache.page_table + tile.place.batch * parts_.cache.page_table_stride;
    else
      page_ = tile.cache_slot;
  }

  // Loads the blocks from `last` down to `first`, in the order in which consumers take them. If K
  // and V share one ring, each warp skips the slots of the other. Page ids are read one step ahead.
  __device__ __forceinline__ void load_all(int first, int last) {
    int ahead = page_of(last);
    pass_other(kIsV);  // K of the last step
#pragma unroll 1
    for (int block = last; block >= first; --block) {
      const int here = ahead;
      if (block > first) ahead = page_of(block - 1);
      // With kOverlap consumers take K of the next step before V of this one.
      if (kIsV && kOverlap) pass_other(block > first);
      load(here, block);
      if (kIsV && !kOverlap) pass_other(block > first);
      if (!kIsV) pass_other(kOverlap ? block < last : true);
    }
    if (!kIsV) pass_other(kOverlap);
  }
  __device__ __forceinline__ void pass_other(bool is_there) {
    if constexpr (kKvRing > 0)
      if (is_there) cursor_.advance();
  }

  static __device__ __forceinline__ int key_of(int block, int box) {
    return block * kBlockN + box * kBoxRows;
  }
  __device__ __forceinline__ TensorCoord box_at(int block, int box, int page) const {
    const int key = key_of(block, box);
    return {0, kHasPages ? key % kPageRows : kHasKeyBegins ? first_key_ + key : key, head_, page};
  }
  // Returns the page id of this lane's box, unchecked. load_boxes checks it, so that no instruction
  // waits for the id before.
  template <bool kThroughL2 = false>
  __device__ __forceinline__ int page_of(int block) const {
    if constexpr (!kHasPages) return page_;
    const int box = static_cast<int>(threadIdx.x) % 32, key = key_of(block, box);
    return box < kBoxes && key < length_ ? list_word<kThroughL2>(table_ + key / kPageRows) : 0;
  }
  // Returns `page`, or 0 if `page` is out of range, so that no load leaves the cache.
  __device__ __forceinline__ int inside(int page) const {
    return static_cast<unsigned>(page) < static_cast<unsigned>(parts_.cache.num_pages) ? page : 0;
  }

  // True if one tile has all rows that share a head of K, so that no other block reads their keys.
  __device__ __forceinline__ bool reads_alone() const {
    return kGqaRatio <= kTileHeads && parts_.base.seqlen_q <= kTileRows;
  }

  __device__ __forceinline__ void load(int page, int block) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) load_part(page, block, part);
  }
  __device__ __forceinline__ void load_part(int page, int block, int part) {
    const int first = part * kPartPanels, slot = cursor_.slot();
    const unsigned slots = shared_ + (kIsV ? kLayout.v : kLayout.k);
    const unsigned full = shared_ + (kIsV ? kLayout.v_full : kLayout.k_full) + 8 * slot;
    const unsigned empty = shared_ + (kIsV ? kLayout.v_empty : kLayout.k_empty) + 8 * slot;
    const unsigned to = slots + slot * (kIsV ? kLayout.v_slot_bytes : kLayout.k_slot_bytes);
    mbarrier_wait(empty, cursor_.parity() ^ 1, "slot_empty");
    cursor_.advance();
    if (reads_alone())
      load_boxes<true>(page, block, first, to, full);
    else
      load_boxes<false>(page, block, first, to, full);
  }
  // Loads the panels of a slot, from `first_panel` on.
  template <bool kAlone>
  __device__ __forceinline__ void load_boxes(int page, int block, int first_panel, unsigned to,
                                             unsigned full) const {
    const int first = block * kBlockN, panels = min(kPartPanels, kPanels - first_panel),
              boxes = min(kBoxes, (length_ - first + kBoxRows - 1) / kBoxRows);
    const int own = inside(page);
    if (threadIdx.x % 32 == 0)
      mbarrier_arrive_expect_tx(full, max(boxes, 0) * panels * kBoxRows * kPanelRowBytes);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int here = kBoxes > 1 ? __shfl_sync(~0u, own, box) : own;
      if (threadIdx.x % 32 != 0 || box >= boxes) continue;
      TensorCoord at = box_at(block, box, here);
#pragma unroll
      for (int panel = 0; panel < panels; ++panel) {
        at.head_dim = (first_panel + panel) * kPanelColumns;
        const unsigned panel_to = to + (panel * kBlockN + box * kBoxRows) * kPanelRowBytes;
        if constexpr (kAlone)
          tma_load(panel_to, map_, full, at, evict_first_policy());
        else
          tma_load(panel_to, map_, full, at);
      }
    }
  }

  const KernelParts& parts_;
  const TensorMap& map_;
  unsigned shared_;
  const int* table_ = nullptr;  // pages of the tile's request
  int length_ = 0, first_key_ = 0, head_ = 0, page_ = 0;
  SlotCursor<(kKvRing > 0 || !kIsV ? kLayout.k_slots : kLayout.v_slots)> cursor_;
};

}  // namespace attune
