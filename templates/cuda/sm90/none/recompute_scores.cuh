// SPDX-License-Identifier: Apache-2.0
// A kernel that tests each maximum before it takes exponentials never computes scores again. Twin
// of recompute_scores.cuh.
#pragma once

namespace none {

template <class Args, class PrefillTile, int kCount>
__device__ __forceinline__ void recompute_scores(const Args&, const PrefillTile&, int, int,
                                                 float (&)[kCount]) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
