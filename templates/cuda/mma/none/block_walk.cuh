// SPDX-License-Identifier: Apache-2.0
// The walk of a tile whose kernel has no map of blocks (block_walk.cuh): the place of a block is
// its number.
#pragma once

namespace none {

struct BlockList {
  template <class Map>
  __device__ __forceinline__ BlockList(const Map&, int, int, int) {}
};
template <class Range>
__device__ __forceinline__ Range operator&(const BlockList&, const Range& range) {
  return range;
}

struct BlockWalk {
  __device__ __forceinline__ explicit BlockWalk(const BlockList&) {}

  static __device__ __forceinline__ int places(int end) { return end; }
  static __device__ __forceinline__ void to_place(int*) {}
  static __device__ __forceinline__ void to_block(int*) {}
  static __device__ __forceinline__ void leave(int*) {}
  static __device__ __forceinline__ bool is_partial() { return false; }
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
