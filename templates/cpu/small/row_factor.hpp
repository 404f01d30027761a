// SPDX-License-Identifier: Apache-2.0
// The factor that append_kv computes for a row. Kernels include it if kMakesFactors.
#pragma once

#include "shared/key_factors.h"

namespace attune {

// Returns the factor for a row's largest magnitude; NaN if the row has a NaN.
template <Dtype kCode, int kHeadDim>
inline float factor_of_row(const float* values) {
  unsigned largest = 0;
  for (int i = 0; i < kHeadDim; ++i) {
    const unsigned bits = __builtin_bit_cast(unsigned, values[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return factor_of_largest<kCode>(__builtin_bit_cast(float, largest));
}

}  // namespace attune
