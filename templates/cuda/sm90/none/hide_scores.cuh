// SPDX-License-Identifier: Apache-2.0
// An sm_90 kernel without a mask program: it hides nothing.
#pragma once

namespace none {

template <class Parts, class PrefillTile, int kCount>
__device__ __forceinline__ void hide_scores(const Parts&, const PrefillTile&, int, int,
                                            float (&)[kCount]) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
