// SPDX-License-Identifier: Apache-2.0
// Packs blocks of K and V into contiguous rows of fp32, which the products read. This multiplies
// 8-bit elements by their factors, and transposes a transposed V back to rows.
#pragma once

#include "cpu/parts/simd.hpp"
#include "cpu/parts/transpose.hpp"
#include "shared/kernel_arguments.h"

namespace attune {

inline int least(int a, int b) { return a < b ? a : b; }

// Number of chunks of kLanes columns that cover kWidth. If kLanes does not divide kWidth, the last
// chunk overlaps the one before.
template <int kWidth>
constexpr int kChunks = (kWidth + kLanes - 1) / kLanes;
template <int kWidth>
inline int chunk_begin(int chunk) {
  return least(chunk * kLanes, kWidth - kLanes);
}

// The factors of one head's rows. kBlock rows share a factor (0: all rows share one).
template <int kBlock>
struct RowFactors {
  const float* data;
  long long block_stride;

  RowFactors(const ScaleView& scale, int batch, long long head)
      : data(scale.data ? scale.data + batch * scale.batch_stride +
                              head / scale.heads_per_scale * scale.head_stride
                        : nullptr),
        block_stride(scale.block_stride) {}

  float at(long long row) const {
    if (!data) return 1.0f;
    if constexpr (kBlock > 0) return data[row / kBlock * block_stride];
    return *data;
  }
};
typedef RowFactors<kScaleBlockKv> KvFactors;

// Rows are far apart, so the CPU prefetches few of them. This code prefetches this many rows ahead.
constexpr int kRowsAhead = 16;

template <int kWidth>
inline void fetch_row(const Element<kDtypeKv>* row) {
  for (int c = 0; c < kWidth; c += 64 / static_cast<int>(sizeof(*row))) __builtin_prefetch(row + c);
}

// Packs `count` rows without factors.
template <int kWidth>
inline void pack(const Element<kDtypeKv>* from, long long row_stride, int count, float* to) {
  for (int n = 0; n < least(kRowsAhead, count); ++n) fetch_row<kWidth>(from + n * row_stride);
  for (int n = 0; n < count; ++n, from += row_stride, to += kWidth) {
    if (n + kRowsAhead < count) fetch_row<kWidth>(from + kRowsAhead * row_stride);
    for (int chunk = 0; chunk < kChunks<kWidth>; ++chunk) {
      const int c = chunk_begin<kWidth>(chunk);
      store<Dtype::kFp32>(to + c, load<kDtypeKv>(from + c));
    }
  }
}

// Packs rows [first, first + count) of a head, times their factors. `from` is row `first`.
template <int kWidth>
inline void pack_scaled(const Element<kDtypeKv>* from, long long row_stride,
                        const KvFactors& factors, long long first, int count, float* to) {
  for (int n = 0; n < count; ++n, from += row_stride, to += kWidth) {
    const float factor = factors.at(first + n);
    for (int chunk = 0; chunk < kChunks<kWidth>; ++chunk) {
      const int c = chunk_begin<kWidth>(chunk);
      store<Dtype::kFp32>(to + c, load<kDtypeKv>(from + c) * factor);
    }
  }
}

// Packs the same rows from columns whose keys are adjacent. `from` is key `first` of column 0.
// Memory past the last key is not read.
template <int kWidth>
inline void pack_transposed(const Element<kDtypeKv>* from, long long column_stride,
                            const KvFactors& factors, long long first, int count, float* to) {
  for (int n = 0; n < count; n += kLanes) {
    const int keys = least(kLanes, count - n);
    for (int chunk = 0; chunk < kChunks<kWidth>; ++chunk) {
      const int c = chunk_begin<kWidth>(chunk);
      Floats rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        Element<kDtypeKv> column[kLanes] = {};
        __builtin_memcpy(column, from + (c + i) * column_stride + n,
                         static_cast<unsigned long>(keys) * sizeof(column[0]));
        rows[i] = load<kDtypeKv>(column);
      }
      transpose(rows);
      for (int i = 0; i < keys; ++i)
        store<Dtype::kFp32>(to + (n + i) * kWidth + c, rows[i] * factors.at(first + n + i));
    }
  }
}

}  // namespace attune
