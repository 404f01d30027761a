// SPDX-License-Identifier: Apache-2.0
// Tiles of an sm_90 kernel that work through a list of blocks (shared/block_map.h) instead of all between two. Their first_block and
// last_block are those of the list's part that is the tile's, and first_entry and last_entry where these stand in it.
#pragma once

#include "cuda/attention/block_list.cuh"
#include "cuda/attention/tile_rows.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// Splits share a list evenly. There is an entry to visit always, as there is a block (prefill_tile).
template <class PrefillTile>
__device__ __forceinline__ void take_from_list(const BlockMapArgs& map, PrefillTile* tile) {
  const BlockList list(map, tile->batch, tile->head / kTileHeads, tile->first_row / kTileRows);
  const int count = list.count();
  tile->first_entry = count * tile->split / kKvSplits;
  tile->last_entry = count * (tile->split + 1) / kKvSplits - 1;
  tile->no_keys = tile->last_entry < tile->first_entry;
  if (tile->no_keys) tile->last_entry = tile->first_entry;
  tile->first_block = block_of_entry(list.entry(tile->first_entry));
  tile->last_block = block_of_entry(list.entry(tile->last_entry));
}

// The second half of a tile's words for its consumers.
template <class PrefillTile>
__device__ __forceinline__ void store_entries(unsigned words, const PrefillTile& tile) {
  store_shared_16(words + 16, {{static_cast<unsigned>(tile.first_block),
                                static_cast<unsigned>(tile.last_block),
                                static_cast<unsigned>(tile.first_entry),
                                static_cast<unsigned>(tile.last_entry)}});
}

// The tile's blocks, last to first.
template <class PrefillTile>
__device__ __forceinline__ BlockWalk blocks_of(const BlockMapArgs& map, const PrefillTile& tile) {
  const BlockList list(map, tile.batch, tile.head / kTileHeads, tile.first_row / kTileRows);
  return BlockWalk(list, tile.last_entry);
}

}  // namespace attune
