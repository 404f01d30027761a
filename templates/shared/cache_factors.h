// SPDX-License-Identifier: Apache-2.0
// The factors of caches of 8 bits: one for the tensor, or one for each head of K. They are not
// negative; one that is NaN or infinite makes the rows that see it non-finite.
#pragma once

#include "shared/host_device.h"
#include "shared/kernel_arguments.h"

namespace attune {

ATTUNE_HOST_DEVICE inline float cache_factor(const ScaleView& scale, int kv_head) {
  if (scale.data == nullptr) return 1.0f;
  return scale.data[kv_head / scale.heads_per_scale * scale.head_stride];
}
// Returns the factor of scores for k. A factor of 0 becomes 2^-100, so that a hidden score stays
// -inf.
ATTUNE_HOST_DEVICE inline float score_factor(const ScaleView& scale, int kv_head) {
  constexpr float kTiny = 7.888609052210118e-31f;
  const float factor = cache_factor(scale, kv_head);
  return factor < kTiny ? kTiny : factor;
}
// `normalizer`, 0 for a row that saw nothing, times the factor of v.
ATTUNE_HOST_DEVICE inline float scaled_by(const ScaleView& scale, int kv_head, float normalizer) {
  return normalizer == 0.0f ? 0.0f : normalizer * cache_factor(scale, kv_head);
}

}  // namespace attune
