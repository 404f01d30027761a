// SPDX-License-Identifier: Apache-2.0
// A tile's list in the map of blocks (shared/block_map.h), as kernels read it. The step that writes it is over by then: with
// dependent launches each thread that reads waits for it first.
#pragma once

#include "cuda/attention/mask.cuh"
#include "shared/block_map.h"

namespace attune {

class BlockList {
 public:
  BlockList() = default;
  // `heads`: which heads' tiles, counted in tiles.
  __device__ __forceinline__ BlockList(const BlockMapArgs& map, int batch, int heads, int row_block)
      : list_(map.lists + batch * map.batch_stride + heads * map.head_stride +
              static_cast<long long>(row_block) * map.row_stride) {}

  __device__ __forceinline__ int count() const { return list_[0]; }
  __device__ __forceinline__ int entry(int place) const { return list_[1 + place]; }

 private:
  const int* list_;
};

__device__ __forceinline__ int block_of_entry(int entry) { return entry >> kMapGroupBits; }
__device__ __forceinline__ bool is_partial(int entry, int group) { return entry >> group & 1; }

// What a tile visits of a range of blocks: from its first entry's to its last one's.
__device__ __forceinline__ BlockRange operator&(const BlockList& list, BlockRange range) {
  range.begin = block_of_entry(list.entry(0));
  range.end = block_of_entry(list.entry(list.count() - 1)) + 1;
  return range;
}

// Entries from a place down. Each is read a step before it is asked for.
class BlockWalk {
 public:
  BlockWalk() = default;
  __device__ __forceinline__ BlockWalk(const BlockList& list, int last) : list_(list), next_(last) {
    ahead_ = list_.entry(next_);
  }

  // The next block; the word ahead of the first entry is the list's length, which nobody asks for.
  __device__ __forceinline__ int take() {
    here_ = ahead_;
    --next_;
    ahead_ = list_.entry(next_);
    return block_of_entry(here_);
  }
  // Whether a group of rows sees the block that was taken in part.
  __device__ __forceinline__ bool partial(int group) const { return is_partial(here_, group); }

 private:
  BlockList list_;
  int next_;
  int ahead_;
  int here_;
};

}  // namespace attune
