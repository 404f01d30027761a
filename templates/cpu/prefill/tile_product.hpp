// SPDX-License-Identifier: Apache-2.0
// The two matrix products of attention as register tiles. Queries lie across the lanes: a tile
// multiplies kRows scalars, each broadcast from a row of K or V, with a panel of queries, and keeps
// kRows x kVectors sums in registers. So neither K nor V is ever transposed, and no reduction
// crosses lanes.
#pragma once

#include "cpu/parts/simd.hpp"

namespace attune {

// scores[r] = sum over c of keys[r][c] * queries[c]; raises `largest` to the largest score seen.
template <int kTileRows>
inline void score_tile(const float* keys, long long key_stride, const Panel* queries, Panel* scores,
                       Panel& largest) {
  Panel sum[kTileRows] = {};
#pragma clang loop unroll_count(kTileRows == kRows ? kUnroll : 1)
  for (int c = 0; c < kHeadDimQk; ++c) {
    const Panel query = queries[c];
#pragma clang loop unroll(full)
    for (int r = 0; r < kTileRows; ++r) sum[r] += keys[r * key_stride + c] * query;
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < kTileRows; ++r) {
    scores[r] = sum[r];
    largest = larger(sum[r], largest);
  }
}

// Computes scores of `count` keys. If kRows does not divide `count`, the last tile overlaps the one
// before.
inline void score_block(const float* keys, long long key_stride, int count, const Panel* queries,
                        Panel* scores, Panel& largest) {
  if (count < kRows) {
    for (int n = 0; n < count; ++n)
      score_tile<1>(keys + n * key_stride, key_stride, queries, scores + n, largest);
    return;
  }
  for (int n = 0; n < count; n += kRows) {
    const int at = n + kRows <= count ? n : count - kRows;
    score_tile<kRows>(keys + at * key_stride, key_stride, queries, scores + at, largest);
  }
}

// output[c] = output[c] * decay + sum over n of values[n][c] * weights[n], for kTileRows columns c
// of V. The products are summed separately before they are added, like the weights
// (online_softmax.hpp).
template <int kTileRows>
inline void output_tile(const float* values, long long value_stride, int count,
                        const Panel* weights, Panel decay, Panel* output) {
  Panel sum[kTileRows] = {};
#pragma clang loop unroll_count(kTileRows == kRows ? kUnroll : 1)
  for (int n = 0; n < count; ++n) {
    const Panel weight = weights[n];
#pragma clang loop unroll(full)
    for (int r = 0; r < kTileRows; ++r) sum[r] += values[n * value_stride + r] * weight;
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < kTileRows; ++r) output[r] = output[r] * decay + sum[r];
}

inline void output_block(const float* values, long long value_stride, int count,
                         const Panel* weights, Panel decay, Panel* output) {
  constexpr int kWhole = kHeadDimV / kRows * kRows;
  for (int c = 0; c < kWhole; c += kRows)
    output_tile<kRows>(values + c, value_stride, count, weights, decay, output + c);
  if constexpr (kWhole < kHeadDimV) {
    output_tile<kHeadDimV - kWhole>(values + kWhole, value_stride, count, weights, decay,
                                    output + kWhole);
  }
}

}  // namespace attune
