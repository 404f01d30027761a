// SPDX-License-Identifier: Apache-2.0
// Loads the keys that lists name into the slots of K. Keys lie apart, so TMA boxes would have one
// key each; cp.async by two warps takes their place. Each warp has half of the keys of a step, one
// per lane. The entry of a lane's key is read two steps ahead, and its page one step ahead.
//
// Entries that name no key become zeros: the consumers hide their scores (listed_scores.cuh), and
// zeros as V add nothing.
#pragma once

#include "cuda/cache_sm90/cache_stream.cuh"
#include "cuda/parts/listed_places.cuh"
#include "cuda/ptx/cp_async.cuh"

namespace attune {

static_assert(!kKeyLists || kTileRows == 1, "rows have lists of their own");

class ListedKeyLoads {
  static constexpr int kPanels = kLayout.panels_qk, kParts = kMlaLayout.slots_of_step;
  static constexpr int kPartPanels = (kPanels + kParts - 1) / kParts;
  static constexpr int kKeysOfWarp = 32, kLanesOfRow = kPanelRowBytes / 16;
  static constexpr int kKeysAtOnce = 32 / kLanesOfRow;
  static_assert(kBlockN == 2 * kKeysOfWarp, "two warps have a key per lane");

 public:
  __device__ __forceinline__ ListedKeyLoads(const KernelParts& parts, const KeyListArgs& lists,
                                            unsigned shared)
      : k_(parts.base.k), places_(parts, lists), shared_(shared) {}

  __device__ __forceinline__ void run() {
    CacheReader tiles(shared_);
    CacheTile tile;
    while (tiles.next(&tile)) {
      places_.take({tile.place.batch, tile.keys, tile.request.first_key, tile.cache_slot, tile.list,
                    tile.request.length, tile.place.head / kGqaRatio});
      load_all(tile.place.first_block, tile.place.last_block);
    }
    let_next_grid_start();
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int half() { return static_cast<int>(threadIdx.x) / 64; }

  // Loads the blocks from `last` down to `first`, in the order in which consumers take them.
  __device__ __forceinline__ void load_all(int first, int last) {
    int key = key_of(last, first), page = places_.page_of(key), ahead = key_of(last - 1, first);
#pragma unroll 1
    for (int block = last; block >= first; --block) {
      const int next_page = places_.page_of(ahead), beyond = key_of(block - 2, first);
      load(key, page);
      key = ahead;
      page = next_page;
      ahead = beyond;
    }
  }
  // Returns this lane's key of a block; -1 if there is none.
  __device__ __forceinline__ int key_of(int block, int first) const {
    return block < first ? -1 : places_.key_of(block * kBlockN + half() * kKeysOfWarp + lane());
  }

  __device__ __forceinline__ void load(int key, int page) {
    const char* const row =
        static_cast<const char*>(k_.data) +
        2 * (places_.inside(page) * k_.batch_stride + places_.row_in_page(key) * k_.row_stride +
             places_.head() * k_.head_stride);
    const unsigned listed = __ballot_sync(~0u, key >= 0);
#pragma unroll
    for (int part = 0; part < kParts; ++part) load_part(row, listed, part * kPartPanels);
  }
  // Loads the panels of a slot, from `first_panel` on, and says which keys are there. Eight lanes
  // copy a row of a panel.
  __device__ __forceinline__ void load_part(const char* row, unsigned listed, int first_panel) {
    const int slot = cursor_.slot(), panels = min(kPartPanels, kPanels - first_panel);
    const unsigned full = shared_ + kLayout.k_full + 8 * slot;
    const unsigned to =
        shared_ + kLayout.k + slot * kLayout.k_slot_bytes + half() * kKeysOfWarp * kPanelRowBytes;
    mbarrier_wait(shared_ + kLayout.k_empty + 8 * slot, cursor_.parity() ^ 1, "slot_empty");
    cursor_.advance();
    const int chunk = lane() % kLanesOfRow;
#pragma unroll 2
    for (int first = 0; first < kKeysOfWarp; first += kKeysAtOnce) {
      const int at = first + lane() / kLanesOfRow;
      const char* const from = reinterpret_cast<const char*>(__shfl_sync(
                                   ~0u, reinterpret_cast<unsigned long long>(row), at)) +
                               first_panel * kPanelRowBytes + chunk * 16;
      const int bytes = (listed >> at & 1u) != 0 ? 16 : 0;
      const unsigned line = to + at * kPanelRowBytes + ((chunk ^ at % 8) << 4);
#pragma unroll
      for (int panel = 0; panel < kPartPanels; ++panel)
        if (panel < panels)
          cp_async_16<128>(line + panel * (kBlockN * kPanelRowBytes), from + panel * kPanelRowBytes,
                           bytes);
    }
    cp_async_arrive(full);
    if (lane() == 0) {
      store_shared_word(shared_ + kMlaLayout.listed + 8 * slot + 4 * half(),
                        static_cast<int>(listed));
      mbarrier_arrive(full);
    }
  }

  const OperandView& k_;
  ListedPlaces places_;
  unsigned shared_;
  SlotCursor<kLayout.k_slots> cursor_;
};

template <class Map>
__device__ __forceinline__ void load_keys(const KernelParts& parts, const KeyListArgs& lists,
                                          const Map&, unsigned shared) {
  ListedKeyLoads(parts, lists, shared).run();
}

}  // namespace attune
