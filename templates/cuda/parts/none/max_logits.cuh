// SPDX-License-Identifier: Apache-2.0
// Kernels that write no largest logits.
#pragma once

namespace none {

template <class Scales>
__device__ __forceinline__ void raise_max_logit(const Scales&, int, float) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
