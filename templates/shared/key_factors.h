// SPDX-License-Identifier: Apache-2.0
// Factors of 8-bit caches, one for each key of a head, or one for each page. Strides locate them,
// so they may lie anywhere, even between the rows. Like the factors of cache_factors.h they are not
// negative. Kernels include this file if kKeyFactors.
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

// Returns the bytes of factors per slot of a decode kernel: the factors for K of the slot's keys,
// then the factors for V. They follow all other shared memory (decode_layout.h).
ATTUNE_HOST_DEVICE constexpr int decode_factor_bytes(int keys) { return keys * 8; }

// Returns the factor of a row with this largest magnitude; the row is divided by the factor before
// it is rounded. The factor is at least the smallest normal fp32. A row of zeros gets this smallest
// factor, since kernels scale weights relative to the largest factors. NaN stays NaN.
template <Dtype kDtype>
ATTUNE_HOST_DEVICE inline float factor_of_largest(float largest) {
  const float factor = largest / largest_code_value(kDtype);
  return factor < kSmallestFactor ? kSmallestFactor : factor;
}

}  // namespace attune
