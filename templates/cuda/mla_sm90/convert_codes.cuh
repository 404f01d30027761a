// SPDX-License-Identifier: Apache-2.0
// Conversion of e4m3 keys to the type of q, times their factors: for warps that write converted
// keys to the slots of K.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/widen_e4m3.cuh"
#include "cuda/sm90/sm90_layout.cuh"
#include "shared/latent_rows.h"

namespace attune {

constexpr int kColumnsOfV = kHeadDimV * kConsumers;

// A factor of bf16 values, times kWidening, as the sum of two numbers: with one alone, its rounding
// would be the same error in all values.
struct SplitFactor {
  unsigned high, low;  // two equal bf16 numbers each
};
__device__ __forceinline__ SplitFactor split_factor(float factor) {
  const float wide = 0x1p120f * factor;
  const unsigned high = pack<Dtype::kBf16>(wide, wide);
  const float rest = wide - __uint_as_float(high << 16);
  return {high, pack<Dtype::kBf16>(rest, rest)};
}
// Converts the four codes of `word` to bf16, times a factor. Products are rounded once: the small
// part is far below a rounding.
__device__ __forceinline__ void widen_e4m3(unsigned word, SplitFactor factor, unsigned& low,
                                           unsigned& high) {
  spread_e4m3<Dtype::kBf16>(word, low, high);
  low = multiply_add_two(low, factor.high, multiply_two<Dtype::kBf16>(low, factor.low));
  high = multiply_add_two(high, factor.high, multiply_two<Dtype::kBf16>(high, factor.low));
}

// 16 converted columns of a key: two chunks of 16 bytes.
struct WideCodes {
  Vector16 chunk[2];
};
__device__ __forceinline__ WideCodes widen_codes(const Vector16& codes, const SplitFactor& factor) {
  WideCodes wide;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    unsigned(&two)[4] = wide.chunk[i / 2].word;
    if constexpr (kLatentRows)
      widen_e4m3(codes.word[i], factor, two[i % 2 * 2], two[i % 2 * 2 + 1]);
    else
      widen_e4m3<kDtypeQ>(codes.word[i], kWidening<kDtypeQ>, two[i % 2 * 2], two[i % 2 * 2 + 1]);
  }
  return wide;
}

// Stores the columns that four lanes have of each of eight keys. `to`: a panel's row of the first
// key, a multiple of eight rows.
__device__ __forceinline__ void store_wide(unsigned to, const WideCodes& wide) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / 4, chunk = lane % 4 * 2;
  const unsigned at = to + row * kPanelRowBytes + ((chunk ^ row) << 4);
  store_shared_16(at, wide.chunk[0]);
  store_shared_16(at ^ 16, wide.chunk[1]);
}

// Returns the factor of a panel of a key. `factor`: this lane's. Four lanes have those of a key.
__device__ __forceinline__ SplitFactor factor_of_panel(int panel, float factor) {
  if constexpr (!kLatentRows) return {};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int number = panel * kPanelColumns / kLatentFactorColumns;
  return split_factor(__shfl_sync(~0u, factor, lane / 4 * 4 + number));
}
// True if the factor of this panel is not that of the panel before.
__device__ constexpr bool begins_factor(int panel) {
  return panel * kPanelColumns % kLatentFactorColumns == 0;
}

}  // namespace attune
