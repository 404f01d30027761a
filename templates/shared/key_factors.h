// SPDX-License-Identifier: Apache-2.0
// Factors of caches of 8 bits that each key of a head has, or each page: strides say which, so they
// may stand anywhere, between the rows too. They are not negative, as those of cache_factors.h.
// Kernels include it where kKeyFactors.
#pragma once

#include "shared/host_device.h"
#include "shared/kernel_arguments.h"
#include "shared/quantise_layout.h"

namespace attune {

// Floats from the first to that of the key in row `row` of a page or slot.
ATTUNE_HOST_DEVICE inline long long key_factor_at(const ScaleView& scale, long long page,
                                                  long long row, int kv_head) {
  return page * scale.batch_stride + row * scale.block_stride +
         kv_head / scale.heads_per_scale * scale.head_stride;
}
ATTUNE_HOST_DEVICE inline float key_factor(const ScaleView& scale, long long page, long long row,
                                           int kv_head) {
  return scale.data[key_factor_at(scale, page, row, kv_head)];
}

// Shared memory of a decode kernel behind all else (decode_layout.h): of each slot the factors of
// its keys of K, then of V.
ATTUNE_HOST_DEVICE constexpr int decode_factor_bytes(int keys) { return keys * 8; }

// Returns the number that a row is divided by before it is rounded, from its largest magnitude. It
// is at least the smallest normal fp32. A row of zeros gets the least factor, since kernels hold
// weights relative to the largest factors. NaN stays NaN.
template <Dtype kDtype>
ATTUNE_HOST_DEVICE inline float factor_of_largest(float largest) {
  const float factor = largest / largest_code_value(kDtype);
  return factor < kSmallestFactor ? kSmallestFactor : factor;
}

}  // namespace attune
