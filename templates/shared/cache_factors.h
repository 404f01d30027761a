// SPDX-License-Identifier: Apache-2.0
// The factors of 8-bit caches: one for the tensor, or one for each head of K. Factors are not
// negative. A factor that is NaN or infinite makes the rows that use it non-finite.
#pragma once

#include "shared/host_device.h"
#include "shared/scale_args.h"

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
// Returns `normalizer` times the factor of v. `normalizer` is 0 for a row that saw no key, and then
// so is the result.
ATTUNE_HOST_DEVICE inline float scaled_by(const ScaleView& scale, int kv_head, float normalizer) {
  return normalizer == 0.0f ? 0.0f : normalizer * cache_factor(scale, kv_head);
}

}  // namespace attune
