// SPDX-License-Identifier: Apache-2.0
// Factors of an 8-bit cache, one per head or for all heads (shared/key_factors.h).
#pragma once

#include "shared/key_factors.h"

namespace attune {

// Returns a score times the factor of K.
__device__ __forceinline__ float scaled_by_k(const ScaleArgs& scales, int kv_head, float score) {
  return score * score_factor(scales.k_scale, kv_head);
}
// Returns the normalizer of a row of O times the factor of V.
__device__ __forceinline__ float scaled_by_v(const ScaleArgs& scales, int kv_head,
                                             float normalizer) {
  return scaled_by(scales.v_scale, kv_head, normalizer);
}

}  // namespace attune
