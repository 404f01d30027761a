// SPDX-License-Identifier: Apache-2.0
// A tile's list in the map of blocks (shared/block_map.h), as kernels read it. The step that writes
// the list must have ended: with dependent launches, each thread that reads waits for it first.
#pragma once

#include "cuda/parts/mask.cuh"
#include "shared/block_map.h"

namespace attune {

class BlockList {
 public:
  BlockList() = default;
  // `heads`: index of the tile along heads.
  __device__ __forceinline__ BlockList(const BlockMapArgs& map, int batch, int heads, int row_block)
      : list_(map.lists +
              static_cast<long long>(batch * map.batch_step + heads * map.head_step + row_block) *
                  map.list_words) {}

  __device__ __forceinline__ int count() const { return list_[0]; }
  __device__ __forceinline__ int entry(int place) const { return *address(place); }
  __device__ __forceinline__ const int* address(int place) const { return list_ + 1 + place; }

 private:
  const int* list_;
};

__device__ __forceinline__ int block_of_entry(int entry) { return entry >> kMapGroupBits; }
__device__ __forceinline__ bool is_partial(int entry, int group) { return entry >> group & 1; }

// Narrows a range of blocks to the blocks that a tile visits: from the block of the list's first
// entry to the block of its last entry.
__device__ __forceinline__ BlockRange operator&(const BlockList& list, BlockRange range) {
  range.begin = block_of_entry(list.entry(0));
  range.end = block_of_entry(list.entry(list.count() - 1)) + 1;
  return range;
}

}  // namespace attune
