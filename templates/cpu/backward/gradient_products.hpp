// SPDX-License-Identifier: Apache-2.0
// The matrix products of backward_cpu as register tiles of kRows x kVectors sums. In two of the
// products queries lie across the lanes, as in tile_product.hpp. In the third, columns lie across
// the lanes, so that sums over queries cross no lanes.
#pragma once

#include "cpu/parts/simd.hpp"

namespace attune {

template <int kWidth, int kTileRows>
inline void multiply_tile(const float* rows, const Panel* columns, Panel* products) {
  Panel sum[kTileRows] = {};
#pragma clang loop unroll_count(kTileRows == kRows ? kUnroll : 1)
  for (int c = 0; c < kWidth; ++c) {
    const Panel column = columns[c];
#pragma clang loop unroll(full)
    for (int r = 0; r < kTileRows; ++r) sum[r] += rows[r * kWidth + c] * column;
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < kTileRows; ++r) products[r] = sum[r];
}

// products[n] = sum over c of rows[n][c] * columns[c]. The last tile overlaps the one before.
template <int kWidth>
inline void multiply_rows(const float* rows, int count, const Panel* columns, Panel* products) {
  if (count < kRows) {
    for (int n = 0; n < count; ++n)
      multiply_tile<kWidth, 1>(rows + n * kWidth, columns, products + n);
    return;
  }
  for (int n = 0; n < count; n += kRows) {
    const int at = n + kRows <= count ? n : count - kRows;
    multiply_tile<kWidth, kRows>(rows + at * kWidth, columns, products + at);
  }
}

template <int kWidth, int kTileRows>
inline void add_columns_tile(const float* rows, int count, const Panel* weights, Panel* sums) {
  Panel sum[kTileRows];
#pragma clang loop unroll(full)
  for (int r = 0; r < kTileRows; ++r) sum[r] = sums[r];
#pragma clang loop unroll_count(kTileRows == kRows ? kUnroll : 1)
  for (int n = 0; n < count; ++n) {
    const Panel weight = weights[n];
#pragma clang loop unroll(full)
    for (int r = 0; r < kTileRows; ++r) sum[r] += rows[n * kWidth + r] * weight;
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < kTileRows; ++r) sums[r] = sum[r];
}

// sums[c] += sum over n of rows[n][c] * weights[n].
template <int kWidth>
inline void add_columns(const float* rows, int count, const Panel* weights, Panel* sums) {
  constexpr int kWhole = kWidth / kRows * kRows;
  for (int c = 0; c < kWhole; c += kRows)
    add_columns_tile<kWidth, kRows>(rows + c, count, weights, sums + c);
  if constexpr (kWhole < kWidth)
    add_columns_tile<kWidth, kWidth - kWhole>(rows + kWhole, count, weights, sums + kWhole);
}

// The width of a row across the lanes: columns padded to whole registers.
template <int kWidth>
constexpr int kPadded = (kWidth + kLanes - 1) / kLanes* kLanes;

template <int kStride, int kTileVectors>
inline void add_rows_tile(const Panel* weights, const float* rows, float* sums) {
  Floats sum[kRows][kTileVectors];
#pragma clang loop unroll(full)
  for (int r = 0; r < kRows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < kTileVectors; ++v)
      sum[r][v] = load<Dtype::kFp32>(sums + r * kStride + v * kLanes);
  const float* weight = reinterpret_cast<const float*>(weights);
#pragma clang loop unroll_count(kUnroll)
  for (int q = 0; q < kPanelRows; ++q) {
    Floats row[kTileVectors];
#pragma clang loop unroll(full)
    for (int v = 0; v < kTileVectors; ++v)
      row[v] = load<Dtype::kFp32>(rows + q * kStride + v * kLanes);
#pragma clang loop unroll(full)
    for (int r = 0; r < kRows; ++r)
#pragma clang loop unroll(full)
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] += weight[r * kPanelRows + q] * row[v];
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < kRows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < kTileVectors; ++v)
      store<Dtype::kFp32>(sums + r * kStride + v * kLanes, sum[r][v]);
}

// sums[n][c] += sum over the panel's queries q of weights[n][q] * rows[q][c], for `count` keys n
// rounded up to whole tiles. Rows and sums are padded.
template <int kWidth>
inline void add_rows(const Panel* weights, int count, const float* rows, float* sums) {
  constexpr int kStride = kPadded<kWidth>;
  constexpr int kAll = kStride / kLanes;
  constexpr int kWhole = kAll / kVectors * kVectors;
  for (int n = 0; n < count; n += kRows) {
    for (int v = 0; v < kWhole; v += kVectors)
      add_rows_tile<kStride, kVectors>(weights + n, rows + v * kLanes,
                                       sums + n * kStride + v * kLanes);
    if constexpr (kWhole < kAll)
      add_rows_tile<kStride, kAll - kWhole>(weights + n, rows + kWhole * kLanes,
                                            sums + n * kStride + kWhole * kLanes);
  }
}

}  // namespace attune
