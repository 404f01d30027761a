// SPDX-License-Identifier: Apache-2.0
// A kernel whose keys lie in boxes of at least 8: one warp loads them through TMA. Twin of
// gathered_keys.cuh.
#pragma once

#include "cuda/cache_sm90/cache_loads.cuh"

namespace none {

template <class Parts, class Lists, class Map>
__device__ __forceinline__ void load_keys(const Parts& parts, const Lists&, const Map& map,
                                          unsigned shared) {
  attune::CacheLoads<false>(parts, map, shared).run();
}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
