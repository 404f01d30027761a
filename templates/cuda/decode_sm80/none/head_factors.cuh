// SPDX-License-Identifier: Apache-2.0
// Caches without a factor per head: values stay as they are.
#pragma once

namespace none {

template <class Scales>
__device__ __forceinline__ float scaled_by_k(const Scales&, int, float score) {
  return score;
}
template <class Scales>
__device__ __forceinline__ float scaled_by_v(const Scales&, int, float normalizer) {
  return normalizer;
}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
