// SPDX-License-Identifier: Apache-2.0
// Reads rows of 8-bit latent caches that hold their own factors (shared/latent_rows.h). Rows have
// any address, so factors and columns of 16 bits are copied byte by byte.
#pragma once

#include "cpu/parts/none/features.hpp"
#include "cpu/parts/simd.hpp"
#include "shared/latent_rows.h"

namespace attune {

// Loads the first kColumns columns of a row, times their factors, as whole vectors: all columns of
// K, or those of V.
template <int kColumns>
inline void load_latent_row(const Element<kDtypeKv>* row, Floats* to) {
  static_assert(kLatentFactorColumns % kLanes == 0 && kColumns % kLanes == 0,
                "a vector has one factor");
  constexpr int kNarrowColumns = kColumns < kHeadDimV ? kColumns : kHeadDimV;
  float factors[kHeadDimV / kLatentFactorColumns];
  __builtin_memcpy(factors, row + kHeadDimV, sizeof(factors));
  for (int c = 0; c < kNarrowColumns; c += kLanes)
    to[c / kLanes] = load<kDtypeKv>(row + c) * factors[c / kLatentFactorColumns];
  Element<kDtypeQ> rest[kLanes];
  for (int c = kHeadDimV; c < kColumns; c += kLanes) {
    __builtin_memcpy(rest, row + latent_rest_at(kHeadDimV) + 2 * (c - kHeadDimV), sizeof(rest));
    to[c / kLanes] = load<kDtypeQ>(rest);
  }
}

}  // namespace attune
