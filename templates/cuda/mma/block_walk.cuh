// SPDX-License-Identifier: Apache-2.0
// The walk of an mma.sync kernel over the blocks of keys that its tile visits: from the last entry
// of the tile's list (parts/block_list.cuh) down. The place of a block is the index of its entry.
// The rows of a tile are one group.
#pragma once

#include "cuda/parts/block_list.cuh"

namespace attune {

class BlockWalk {
 public:
  __device__ __forceinline__ explicit BlockWalk(const BlockList& list)
      : list_(list), place_(list.count() - 1) {}

  // Returns the number of places. Without a list it is `end`, the block after the last one.
  __device__ __forceinline__ int places(int) const { return list_.count(); }

  // Replaces the number of a block by the place of this step. Callers that count blocks down one by
  // one need no other number.
  __device__ __forceinline__ void to_place(int* block) const { *block = place_; }
  // Replaces a place by the block at this place.
  __device__ __forceinline__ void to_block(int* place) const {
    *place = block_of_entry(list_.entry(*place));
  }
  // Does to_place, and goes to the next step.
  __device__ __forceinline__ void leave(int* block) { *block = place_--; }
  // True if the mask program may hide scores of this step's block.
  __device__ __forceinline__ bool is_partial() const {
    return attune::is_partial(list_.entry(place_), 0);
  }

 private:
  BlockList list_;
  int place_;
};

}  // namespace attune
