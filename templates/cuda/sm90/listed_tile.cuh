// SPDX-License-Identifier: Apache-2.0
// Tiles of an sm_90 kernel that work through a list of blocks (shared/block_map.h) instead of all
// blocks of a range. Each tile has a part of the list: first_block and last_block are the blocks at
// its ends, and last_entry is the address of its last entry.
#pragma once

#include "cuda/parts/block_list.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/sm90/tile_rows.cuh"

namespace attune {

// Sets the tile's part of its list. Splits share a list evenly. There is always an entry to visit,
// as there is always a block (prefill_tile).
template <class PrefillTile>
__device__ __forceinline__ void take_from_list(const BlockMapArgs& map, PrefillTile* tile) {
  const BlockList list(map, tile->batch, tile->head / kTileHeads, tile->first_row / kTileRows);
  const int count = list.count();
  const int first = count * tile->split / kKvSplits;
  const int last = count * (tile->split + 1) / kKvSplits - 1;
  tile->no_keys = last < first;
  tile->last_entry = list.address(max(first, last));
  tile->first_block = block_of_entry(list.entry(first));
  tile->last_block = block_of_entry(*tile->last_entry);
}

// store_entries() stores the second half of a tile's words for its consumers. entry_address() makes
// the address of the last entry from these words.
template <class PrefillTile>
__device__ __forceinline__ void store_entries(unsigned words, const PrefillTile& tile) {
  const auto address = reinterpret_cast<unsigned long long>(tile.last_entry);
  store_shared_16(words + 16,
                  {{static_cast<unsigned>(tile.first_block), static_cast<unsigned>(tile.last_block),
                    static_cast<unsigned>(address), static_cast<unsigned>(address >> 32)}});
}
__device__ __forceinline__ const int* entry_address(unsigned low, unsigned high) {
  return reinterpret_cast<const int*>(static_cast<unsigned long long>(high) << 32 | low);
}

// A tile's entries, last to first. A step takes its entry before it waits for anything else, which
// hides the read. Later uses, which are rare, read the entry again instead of holding it in a
// register.
class BlockWalk {
 public:
  // Takes the tile's last entry.
  template <class PrefillTile>
  __device__ __forceinline__ void begin(const PrefillTile& tile) {
    next_ = tile.last_entry;
    here_ = block_of_entry(*next_--);
  }

  // Takes the next entry and returns its block.
  __device__ __forceinline__ int next() {
    before_ = here_;
    here_ = block_of_entry(*next_--);
    return here_;
  }
  // Returns the block before the one that was taken last.
  __device__ __forceinline__ int before() const { return before_; }

  // Return the entry that was taken last, and the entry taken before it.
  __device__ __forceinline__ int taken() const { return reread(next_)[1]; }
  __device__ __forceinline__ int taken_before() const { return reread(next_)[2]; }

 private:
  const int* next_;
  int here_;
  int before_;
};

// The map is made by the kernel before this one. All roles read it.
__device__ __forceinline__ void await_block_map() { wait_for_prior_grid(); }

}  // namespace attune
