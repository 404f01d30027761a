// SPDX-License-Identifier: Apache-2.0
// Gathers keys that lie apart into the slots of K: keys that lists name, or keys in pages that are
// too small for TMA boxes. A box would have few keys; cp.async by two warps takes their place. Keys
// of 8 bits are gathered too, and converted (key_conversions.cuh). Each warp has an equal part of
// the keys of a step, one per lane. The number of a lane's key is known, or read from its list, two
// steps ahead, and its page is read one step ahead.
//
// Places without a key become zeros, which add nothing as V. Consumers hide their scores: those of
// lists by the bits that are stored here (listed_scores.cuh), others by the mask.
#pragma once

#include "cuda/cache_sm90/cache_stream.cuh"
#include "cuda/mla_sm90/key_conversions.cuh"  // where kConvertsKeys, else none/
#include "cuda/parts/listed_places.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/l2_policy.cuh"

namespace attune {

static_assert(!kKeyLists || kTileRows == 1, "rows have lists of their own");

template <class Lists>
class GatheredKeys {
  static constexpr int kElementBytes = kConvertsKeys ? 1 : 2;
  static constexpr int kPanels = kLayout.panels_qk, kParts = kMlaLayout.slots_of_step;
  static constexpr int kPartPanels = (kPanels + kParts - 1) / kParts;
  static constexpr int kKeysOfWarp = kBlockN / kGatherWarps, kLanesOfRow = kPanelRowBytes / 16;
  static constexpr int kKeysAtOnce = 32 / kLanesOfRow;
  static constexpr int kKeyBytes = kConvertsKeys ? kCodeBytes : 2 * kHeadDimQk;
  static constexpr int kKeyLines = (kKeyBytes + kPanelRowBytes - 1) / kPanelRowBytes;
  // With few slots, listed keys that are converted would wait for memory each time.
  static constexpr bool kPrefetchesKeys = kConvertsKeys && kKeyLists && kParts == 1;
  static_assert(kKeysOfWarp <= 32, "a lane has one key");

 public:
  __device__ __forceinline__ GatheredKeys(const KernelParts& parts, const Lists& lists,
                                          unsigned shared)
      : k_(parts.base.k),
        places_(parts, lists),
        shared_(shared),
        policy_(kGqaRatio <= kTileHeads && parts.base.seqlen_q <= kTileRows
                    ? evict_first_policy()
                    : evict_normal_policy()),
        conversions_(shared, number(), policy_) {}

  __device__ __forceinline__ void run() {
    CacheReader tiles(shared_);
    CacheTile tile;
    if (kScheduler == kShared && !kKeyLists && (!kConvertsKeys || number() < kKeyWarps)) {
      named_barrier_sync(kBarrierFirstTile + number(), 2 * 32);
      const bool is_tile = read_tile(shared_, &tile);
      named_barrier_arrive(kBarrierFirstRead, 32 * (1 + kKeyWarps));
      if (is_tile) prefetch(tile);
    }
    while (tiles.next(&tile)) {
      begin(tile);
      load_all(tile.place.first_block, tile.place.last_block);
      conversions_.finish();
    }
    let_next_grid_start();
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // Returns the number of this warp among those that gather keys.
  static __device__ __forceinline__ int number() {
    const int thread = static_cast<int>(threadIdx.x);
    return kConvertsKeys ? thread / 32 % kGatherWarps : thread / 64;
  }

  __device__ __forceinline__ void begin(const CacheTile& tile) {
    places_.take({tile.place.batch, kKeyLists ? tile.keys : 0, tile.request.first_key,
                  tile.cache_slot, kKeyLists ? tile.list : 0, tile.request.length,
                  tile.place.head / kGqaRatio});
  }
  // Prefetches the keys of a tile's first step into the L2 cache.
  __device__ __forceinline__ void prefetch(const CacheTile& tile) {
    begin(tile);
    const int key = key_of(tile.place.last_block, 0);
    prefetch(key, places_.template page_of<true>(key));
  }
  // Prefetches this lane's key into the L2 cache.
  __device__ __forceinline__ void prefetch(int key, int page) const {
    if (key < 0) return;
    const char* const row = row_of(key, page);
#pragma unroll 1
    for (int line = 0; line < kKeyLines; ++line) prefetch_l2(row + line * kPanelRowBytes);
  }

  // Loads the blocks from `last` down to `first`, in the order in which consumers take them.
  __device__ __forceinline__ void load_all(int first, int last) {
    int key = key_of(last, first), page = places_.page_of(key), ahead = key_of(last - 1, first);
#pragma unroll 1
    for (int block = last; block >= first; --block) {
      if constexpr (kConvertsKeys && !kKeyLists) {  // few registers are left, and these are cheap
        key = key_of(block, first);
        ahead = key_of(block - 1, first);
      }
      if constexpr (kConvertsKeys && kArePlaces) page = places_.page_of(key);
      const int next_page = places_.page_of(ahead), beyond = key_of(block - 2, first);
      load(key, page);
      if constexpr (kPrefetchesKeys) prefetch(ahead, next_page);
      key = ahead;
      page = next_page;
      ahead = beyond;
    }
  }
  // Returns this lane's key of a block; -1 if there is none.
  __device__ __forceinline__ int key_of(int block, int first) const {
    return block < first
               ? -1
               : places_.key_of(block * kBlockN + number() * kKeysOfWarp + lane() % kKeysOfWarp);
  }
  __device__ __forceinline__ const char* row_of(int key, int page) const {
    return static_cast<const char*>(k_.data) +
           kElementBytes *
               (places_.inside(page) * k_.batch_stride + places_.row_in_page(key) * k_.row_stride +
                places_.head() * k_.head_stride);
  }

  __device__ __forceinline__ void load(int key, int page) {
    const char* const row = row_of(key, page);
    const unsigned existing = __ballot_sync(~0u, key >= 0);
    if constexpr (kConvertsKeys) return conversions_.load(row, existing);
#pragma unroll
    for (int part = 0; part < kParts; ++part) load_part(row, existing, part * kPartPanels);
  }
  // Loads the panels of a slot, from `first_panel` on. With lists it says which keys are there.
  // Eight lanes copy a row of a panel.
  __device__ __forceinline__ void load_part(const char* row, unsigned existing, int first_panel) {
    const int slot = cursor_.slot(), panels = min(kPartPanels, kPanels - first_panel);
    const unsigned full = shared_ + kLayout.k_full + 8 * slot;
    const unsigned to =
        shared_ + kLayout.k + slot * kLayout.k_slot_bytes + number() * kKeysOfWarp * kPanelRowBytes;
    mbarrier_wait(shared_ + kLayout.k_empty + 8 * slot, cursor_.parity() ^ 1, "slot_empty");
    cursor_.advance();
    const int chunk = lane() % kLanesOfRow;
#pragma unroll 2
    for (int first = 0; first < kKeysOfWarp; first += kKeysAtOnce) {
      const int at = first + lane() / kLanesOfRow;
      const char* const from = reinterpret_cast<const char*>(__shfl_sync(
                                   ~0u, reinterpret_cast<unsigned long long>(row), at)) +
                               first_panel * kPanelRowBytes + chunk * 16;
      const int bytes = (existing >> at & 1u) != 0 ? 16 : 0;
      const unsigned line = to + at * kPanelRowBytes + ((chunk ^ at % 8) << 4);
#pragma unroll
      for (int panel = 0; panel < kPartPanels; ++panel)
        if (panel < panels)
          copy(line + panel * (kBlockN * kPanelRowBytes), from + panel * kPanelRowBytes, bytes);
    }
    cp_async_arrive(full);
    if (kKeyLists && lane() == 0) {
      store_shared_word(shared_ + kMlaLayout.listed + 8 * slot + 4 * number(),
                        static_cast<int>(existing));
      mbarrier_arrive(full);
    }
  }

  // Keys of consecutive numbers are read once if one tile has all rows that share a head of K.
  __device__ __forceinline__ void copy(unsigned to, const char* from, int bytes) const {
    if constexpr (kKeyLists)
      cp_async_16<128>(to, from, bytes);
    else
      cp_async_16<128>(to, from, bytes, policy_);
  }

  const OperandView& k_;
  KeyPlaces<Lists> places_;
  unsigned shared_;
  L2Policy policy_;
  SlotCursor<kLayout.k_slots> cursor_;
  ConvertedKeys conversions_;
};

template <class Lists, class Map>
__device__ __forceinline__ void load_keys(const KernelParts& parts, const Lists& lists, const Map&,
                                          unsigned shared) {
  GatheredKeys<Lists>(parts, lists, shared).run();
}

}  // namespace attune
