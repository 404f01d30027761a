// SPDX-License-Identifier: Apache-2.0
// The two matrix products of attention as register tiles. Queries lie across the lanes: a tile multiplies kRows scalars, each
// broadcast from a row of K or V, with kVectors vectors, and keeps kRows x kVectors accumulators in registers. So neither K
// nor V is ever transposed, and no reduction crosses lanes.
#pragma once

#include "cpu/simd.hpp"

namespace attune {

using Panel = Floats[kVectors];  // one value for each query of a panel

// scores[r] = sum over c of keys[r][c] * queries[c]; raises `largest` to the largest score seen.
template <int kTileRows>
inline void score_tile(const float* keys, long long key_stride, const Panel* queries, Panel* scores, Panel& largest) {
  Floats sum[kTileRows][kVectors] = {};
#pragma clang loop unroll_count(kUnroll)
  for (int c = 0; c < kHeadDimQk; ++c) {
#pragma clang loop unroll(full)
    for (int r = 0; r < kTileRows; ++r) {
      const Floats key = splat(keys[r * key_stride + c]);
#pragma clang loop unroll(full)
      for (int v = 0; v < kVectors; ++v) sum[r][v] += key * queries[c][v];
    }
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < kTileRows; ++r) {
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) {
      scores[r][v] = sum[r][v];
      largest[v] = larger(sum[r][v], largest[v]);
    }
  }
}

// Scores of `count` keys. The last tile of a count that kRows does not divide overlaps the one before.
inline void score_block(const float* keys, long long key_stride, int count, const Panel* queries, Panel* scores, Panel& largest) {
  if (count < kRows) {
    for (int n = 0; n < count; ++n) score_tile<1>(keys + n * key_stride, key_stride, queries, scores + n, largest);
    return;
  }
  for (int n = 0; n < count; n += kRows) {
    const int at = n + kRows <= count ? n : count - kRows;
    score_tile<kRows>(keys + at * key_stride, key_stride, queries, scores + at, largest);
  }
}

// output[c] = output[c] * decay + sum over n of values[n][c] * weights[n], for kTileRows columns c of V.
template <int kTileRows>
inline void output_tile(const float* values, long long value_stride, int count, const Panel* weights, const Panel& decay,
                        Panel* output) {
  Floats sum[kTileRows][kVectors];
#pragma clang loop unroll(full)
  for (int r = 0; r < kTileRows; ++r) {
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = output[r][v] * decay[v];
  }
#pragma clang loop unroll_count(kUnroll)
  for (int n = 0; n < count; ++n) {
#pragma clang loop unroll(full)
    for (int r = 0; r < kTileRows; ++r) {
      const Floats value = splat(values[n * value_stride + r]);
#pragma clang loop unroll(full)
      for (int v = 0; v < kVectors; ++v) sum[r][v] += value * weights[n][v];
    }
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < kTileRows; ++r) {
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) output[r][v] = sum[r][v];
  }
}

inline void output_block(const float* values, long long value_stride, int count, const Panel* weights, const Panel& decay,
                         Panel* output) {
  constexpr int kWhole = kHeadDimV / kRows * kRows;
  for (int c = 0; c < kWhole; c += kRows) {
    output_tile<kRows>(values + c, value_stride, count, weights, decay, output + c);
  }
  if constexpr (kWhole < kHeadDimV) {
    output_tile<kHeadDimV - kWhole>(values + kWhole, value_stride, count, weights, decay, output + kWhole);
  }
}

}  // namespace attune
