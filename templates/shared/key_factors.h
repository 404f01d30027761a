// SPDX-License-Identifier: Apache-2.0
// Factors of 8-bit caches: one for the tensor, one for each head of K, one for each page, or one
// for each key of a head. Strides locate them, so they may lie anywhere, even between the rows.
// They are not negative. A factor that is NaN or infinite makes the rows that use it non-finite.
#pragma once

#include "shared/host_device.h"
#include "shared/layouts/quantise_layout.h"
#include "shared/scale_args.h"

namespace attune {

// Returns the index of the factor of the key in row `row` of a page or slot, in floats.
ATTUNE_HOST_DEVICE inline long long key_factor_at(const ScaleView& scale, long long page,
                                                  long long row, int kv_head) {
  return page * scale.batch_stride + row * scale.block_stride +
         kv_head / scale.heads_per_scale * scale.head_stride;
}
ATTUNE_HOST_DEVICE inline float key_factor(const ScaleView& scale, long long page, long long row,
                                           int kv_head) {
  return scale.data[key_factor_at(scale, page, row, kv_head)];
}

// Returns the factor of a row with this largest magnitude; the row is divided by the factor before
// it is rounded. The factor is at least the smallest normal fp32. A row of zeros gets this smallest
// factor, since kernels scale weights relative to the largest factors. NaN stays NaN.
template <Dtype kDtype>
ATTUNE_HOST_DEVICE inline float factor_of_largest(float largest) {
  const float factor = largest / largest_code_value(kDtype);
  return factor < kSmallestFactor ? kSmallestFactor : factor;
}

// Returns the factor of the tensor or of a head.
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
