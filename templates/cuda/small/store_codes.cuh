// SPDX-License-Identifier: Apache-2.0
// Converts rows in registers to 8-bit codes and writes them row by row, or transposed through
// shared memory (layout: shared/layouts/quantise_layout.h).
#pragma once

#include "cuda/ptx/round_8bit.cuh"
#include "cuda/small/row_values.cuh"
#include "shared/layouts/quantise_layout.h"

namespace attune {

struct alignas(8) Vector8 {
  unsigned word[2];
};

// Returns NaN if the value is infinite, else the value.
__device__ __forceinline__ float nan_if_infinite(float value) { return fmaf(value, 0.0f, value); }
__device__ __forceinline__ unsigned is_infinite(float value) {
  return fabsf(value) == __int_as_float(0x7F800000) ? 1u : 0u;
}

// Packs like pack_fp8, but keeps infinity, which pack_fp8 turns into the largest finite code. In
// e5m2 the code of infinity is the next one. e4m3 has no infinity, so infinity becomes NaN.
template <Dtype kDtype>
__device__ __forceinline__ unsigned pack_codes(float a, float b, float c, float d) {
  if constexpr (kDtype == Dtype::kE4m3)
    return pack_fp8<kDtype>(nan_if_infinite(a), nan_if_infinite(b), nan_if_infinite(c),
                            nan_if_infinite(d));
  return pack_fp8<kDtype>(a, b, c, d) + is_infinite(a) + (is_infinite(b) << 8) +
         (is_infinite(c) << 16) + (is_infinite(d) << 24);
}

// `first` is the index of the tile's first element in o.
__device__ __forceinline__ void store_rows(const OperandView& o, long long first, int rows,
                                           const RowValues& values, float inverse) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int row = row_of(step);
    if (row >= rows) continue;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const float* v = values.at[step] + c * 8;
      Vector8 codes;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        codes.word[i] = pack_codes<kDtypeO>(v[4 * i] * inverse, v[4 * i + 1] * inverse,
                                            v[4 * i + 2] * inverse, v[4 * i + 3] * inverse);
      char* to = static_cast<char*>(o.data) + first + row * o.row_stride + column_of(step, c);
      *reinterpret_cast<Vector8*>(to) = codes;
    }
  }
}

constexpr int kTileWords = quantise_tile_words(kRows);

// Four consecutive rows make one word of each column.
__device__ __forceinline__ void transpose_to_shared(const RowValues& values, float inverse,
                                                    unsigned* tile) {
#pragma unroll
  for (int step = 0; step < kSteps; step += kGroup) {
    const int row = row_of(step);
    if (row >= kRows) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const int column = column_of(step, i / 8) + i % 8;
      tile[column * kTileWords + row / 4] = pack_codes<kDtypeO>(
          values.at[step][i] * inverse, values.at[step + 1 % kGroup][i] * inverse,
          values.at[step + 2 % kGroup][i] * inverse, values.at[step + 3 % kGroup][i] * inverse);
    }
  }
}

// `first` is the index in o of the tile's first row in column 0. Rows from `rows` on are not
// written.
__device__ __forceinline__ void store_transposed(const OperandView& o, long long first, int rows,
                                                 const unsigned* tile) {
  constexpr int kWords = kRows / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kHeadDimQk * kWords; i += kThreads) {
    const int column = i / kWords, row = i % kWords * 4;
    const unsigned codes = tile[column * kTileWords + row / 4];
    unsigned char* to = static_cast<unsigned char*>(o.data) + first + column * o.row_stride + row;
    if (row + 4 <= rows) {
      *reinterpret_cast<unsigned*>(to) = codes;
    } else {
      for (int byte = 0; byte < rows - row; ++byte)
        to[byte] = static_cast<unsigned char>(codes >> (8 * byte));
    }
  }
}

}  // namespace attune
