// SPDX-License-Identifier: Apache-2.0
// The blocks of an sm_90 kernel without a mask program: all blocks of a range, none of them partly
// hidden by a program.
#pragma once

namespace none {

template <class Map, class PrefillTile>
__device__ __forceinline__ void take_from_list(const Map&, PrefillTile*) {}

template <class PrefillTile>
__device__ __forceinline__ void store_entries(unsigned, const PrefillTile&) {}
__device__ __forceinline__ const int* entry_address(unsigned, unsigned) { return nullptr; }

class BlockWalk {
 public:
  template <class PrefillTile>
  __device__ __forceinline__ void begin(const PrefillTile&) {}
  __device__ __forceinline__ int next() { return 0; }
  __device__ __forceinline__ int before() const { return 0; }
  __device__ __forceinline__ int taken() const { return 0; }
  __device__ __forceinline__ int taken_before() const { return 0; }
};

__device__ __forceinline__ bool is_partial(int, int) { return false; }

__device__ __forceinline__ void await_block_map() {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
