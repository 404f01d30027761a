// SPDX-License-Identifier: Apache-2.0
// Keeps the state of a block's work tile and of its warps in shared memory, for the mma.sync
// kernels. Accumulators fill the registers of the main loop, and these values are rarely needed.
// One 16-byte read loads them back.
//
// | offset           | bytes | content                                                 |
// |------------------|-------|---------------------------------------------------------|
// | 0                | 16    | row block, head, batch                                  |
// | 16 * (1 + warp)  | 16    | the warp's BlockRange                                   |
#pragma once

#include "cuda/parts/mask.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

class TileState {
 public:
  __device__ explicit TileState(unsigned address) : address_(address) {}

  // Stores the state. It is readable after the next barrier of the block.
  __device__ void park(const Tile& tile, const BlockRange& range) const {
    if (threadIdx.x == 0)
      store_shared_16(address_, words(tile.row_block, tile.head, tile.batch, 0));
    if (threadIdx.x % 32 == 0)
      store_shared_16(of_warp(), words(range.begin, range.end, range.full_begin, range.full_end));
  }

  __device__ __forceinline__ Tile tile() const {
    const Vector16 v = load_shared_16(address_);
    return {static_cast<int>(v.word[0]), static_cast<int>(v.word[1]), static_cast<int>(v.word[2])};
  }

  // Returns the range of this thread's warp.
  __device__ __forceinline__ BlockRange range() const {
    const Vector16 v = load_shared_16(of_warp());
    return {static_cast<int>(v.word[0]), static_cast<int>(v.word[1]), static_cast<int>(v.word[2]),
            static_cast<int>(v.word[3])};
  }

 private:
  static __device__ __forceinline__ Vector16 words(int a, int b, int c, int d) {
    return {{static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c),
             static_cast<unsigned>(d)}};
  }
  __device__ __forceinline__ unsigned of_warp() const {
    return address_ + 16 + reread_thread_index() / 32 * 16;
  }

  unsigned address_;
};

}  // namespace attune
