// SPDX-License-Identifier: Apache-2.0
// The ring of a warp of a decode kernel, and the tensor maps of kernels whose keys come in boxes.
// Used by both forms of DecodeLoads (decode_loads.cuh, listed_loads.cuh).
#pragma once

#include "cuda/decode_sm80/decode_columns.cuh"
#include "cuda/decode_sm80/decode_factors.cuh"  // where kKeyFactors, else none/
#include "cuda/decode_sm80/decode_items.cuh"
#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/decode_sm80/group_factors.cuh"  // where kGroupFactors, else none/
#include "cuda/ptx/tma.cuh"

namespace attune {

// The tensor maps of a kernel whose keys come in boxes. Others have none.
struct DecodeMaps {
  const TensorMap* k = nullptr;
  const TensorMap* v = nullptr;
};

template <class Map>
__device__ __forceinline__ DecodeMaps maps_of(const Map& k, const Map& v) {
  if constexpr (kSwizzled) return {&k, &v};
  return {};
}
template <class Map>
__device__ __forceinline__ void prefetch_map(const Map& map) {
  if constexpr (kSwizzled)
    if (threadIdx.x == 0) prefetch_tensor_map(map);
}

// Returns the index of the warp's ring in the block.
__device__ __forceinline__ int ring_index() {
  if constexpr (kTogether) return team_index() / kHeads * kTeam + team_warp();
  return static_cast<int>(threadIdx.x) / 32;
}

}  // namespace attune
