// SPDX-License-Identifier: Apache-2.0
// The two products of decode_cpu as register tiles over rows of q that share a head of K: a vector of K or V that a tile has read, and
// converted, serves all of them. Lanes are columns: q . k is summed lane by lane, and the lanes of several products at once.
#pragma once

#include "cpu/decode_rows.hpp"
#include "shared/decode_blocks.h"

namespace attune {

constexpr int kBlock = kDecodeBlockKeys;
constexpr int kStreams = 4;  // keys of a step; see decode_steps.hpp

// What products read: the cache's own rows, or those of 8 bits once they are fp32.
constexpr Dtype kDtypeRead = is_8_bit(kDtypeKv) ? Dtype::kFp32 : kDtypeKv;
using KvElement = Element<kDtypeRead>;

// Pairs of whole vectors of a row. One of bf16 is read as it stands: even elements are its first vector and odd ones its second, and rows of
// q and O are dealt in the same way.
template <int kHeadDim>
constexpr int kPairs = kHeadDim / (2 * kLanes);
constexpr bool kDealt = kDtypeRead == Dtype::kBf16;

struct TwoVectors {
  Floats first, second;
};

inline TwoVectors load_pair(const KvElement* from) {
  if constexpr (kDealt) {
    Words words;
    __builtin_memcpy(&words, from, sizeof(words));
    return {bits_as<Floats>(words << 16), bits_as<Floats>(words & 0xffff0000u)};
  } else {
    return {load<kDtypeRead>(from), load<kDtypeRead>(from + kLanes)};
  }
}

// Vector `i` of a row, one behind its pairs.
template <int kHeadDim>
inline Floats load_behind_pairs(const KvElement* row, int i) {
  Floats vector[2];
  load_row<kDtypeRead, kHeadDim % (2 * kLanes)>(row, kPairs<kHeadDim> * 2 * kLanes, vector);
  return vector[i - kPairs<kHeadDim> * 2];
}

template <int... kIndex>
struct PairIndices {
  static TwoVectors deal(TwoVectors pair) {
    return {__builtin_shufflevector(pair.first, pair.second, (2 * kIndex)...),
            __builtin_shufflevector(pair.first, pair.second, (2 * kIndex + 1)...)};
  }
  static TwoVectors gather(TwoVectors pair) {
    return {__builtin_shufflevector(pair.first, pair.second, (kIndex / 2 + kIndex % 2 * kLanes)...),
            __builtin_shufflevector(pair.first, pair.second,
                                    ((kIndex + kLanes) / 2 + kIndex % 2 * kLanes)...)};
  }
  // In each part of kPart lanes the sum of the halves of x's part, then that of y's. One operand of the addition is a blend, so that the
  // other alone takes a shuffle, of which CPUs do fewer at a time.
  template <int kPart>
  static Floats fold(Floats x, Floats y) {
    constexpr int kHalf = kPart / 2;
    return __builtin_shufflevector(x, y, (kIndex % kPart < kHalf ? kIndex : kIndex + kLanes)...) +
           __builtin_shufflevector(
               x, y, (kIndex % kPart < kHalf ? kIndex + kHalf : kIndex - kHalf + kLanes)...);
  }
};
template <class T, T... kIndex>
using PairIndicesOf = PairIndices<kIndex...>;
using Pairing = __make_integer_seq<PairIndicesOf, int, kLanes>;

// A row in the order in which pairs are read (Pairing::deal), and back (Pairing::gather).
template <int kHeadDim, TwoVectors (*kOrder)(TwoVectors)>
inline void order_row(Floats* row) {
  if constexpr (kDealt)
    for (int i = 0; i < 2 * kPairs<kHeadDim>; i += 2) {
      const TwoVectors pair = kOrder({row[i], row[i + 1]});
      row[i] = pair.first, row[i + 1] = pair.second;
    }
}

// Lane i: the sum of vector i.
template <int kCount = kLanes>
inline Floats sums_of(const Floats* vectors) {
  if constexpr (kCount == 1) {
    return vectors[0];
  } else {
    Floats folded[kCount / 2];
#pragma clang loop unroll(full)
    for (int i = 0; i < kCount / 2; ++i)
      folded[i] = Pairing::fold<kCount>(vectors[i], vectors[i + kCount / 2]);
    return sums_of<kCount / 2>(folded);
  }
}

// Products of kTileRows rows of q and kTileKeys keys, their lanes not summed: sums[row * kStreams + key].
template <int kTileRows, int kTileKeys>
inline void dot_tile(const Floats (*q)[kQkVectors], const KvElement* const* keys, Floats* sums) {
  Floats sum[kTileRows][kTileKeys] = {};
  constexpr int kPaired = 2 * kPairs<kHeadDimQk>;
  for (int i = 0; i < kPaired; i += 2) {
#pragma clang loop unroll(full)
    for (int key = 0; key < kTileKeys; ++key) {
      const TwoVectors k = load_pair(keys[key] + i * kLanes);
#pragma clang loop unroll(full)
      for (int row = 0; row < kTileRows; ++row) {
        sum[row][key] += q[row][i] * k.first;
        sum[row][key] += q[row][i + 1] * k.second;
      }
    }
  }
#pragma clang loop unroll(full)
  for (int i = kPaired; i < kQkVectors; ++i) {
#pragma clang loop unroll(full)
    for (int key = 0; key < kTileKeys; ++key) {
      const Floats k = load_behind_pairs<kHeadDimQk>(keys[key], i);
#pragma clang loop unroll(full)
      for (int row = 0; row < kTileRows; ++row) sum[row][key] += q[row][i] * k;
    }
  }
#pragma clang loop unroll(full)
  for (int row = 0; row < kTileRows; ++row)
#pragma clang loop unroll(full)
    for (int key = 0; key < kTileKeys; ++key) sums[row * kStreams + key] = sum[row][key];
}

// q . k of kTileRows rows with the keys of a step: scores[row * kBlock + stream].
template <int kTileRows>
inline void dot_rows(const Floats (*q)[kQkVectors], const KvElement* const* keys, float* scores) {
  constexpr int kTileKeys = kTileRows > 2 ? 2 : 4;
  constexpr int kSums = kTileRows * kStreams, kWhole = (kSums + kLanes - 1) / kLanes * kLanes;
  Floats sums[kWhole];
  for (int i = kSums; i < kWhole; ++i) sums[i] = 0.0f;
  for (int key = 0; key < kStreams; key += kTileKeys)
    dot_tile<kTileRows, kTileKeys>(q, keys + key, sums + key);
  float totals[kWhole];
#pragma clang loop unroll(full)
  for (int i = 0; i < kWhole; i += kLanes) store<Dtype::kFp32>(totals + i, sums_of(sums + i));
#pragma clang loop unroll(full)
  for (int row = 0; row < kTileRows; ++row)
    __builtin_memcpy(scores + row * kBlock, totals + row * kStreams, kStreams * sizeof(float));
}

// output += weights . v of kTileRows rows and the keys of a step; weights[row * kBlock + stream].
template <int kTileRows>
inline void add_rows(const float* weights, const KvElement* const* values,
                     Floats (*output)[kOutVectors]) {
  constexpr int kPaired = 2 * kPairs<kHeadDimV>;
  for (int i = 0; i < kPaired; i += 2) {
    TwoVectors sum[kTileRows];
#pragma clang loop unroll(full)
    for (int row = 0; row < kTileRows; ++row) sum[row] = {output[row][i], output[row][i + 1]};
#pragma clang loop unroll(full)
    for (int key = 0; key < kStreams; ++key) {
      const TwoVectors v = load_pair(values[key] + i * kLanes);
#pragma clang loop unroll(full)
      for (int row = 0; row < kTileRows; ++row) {
        const float weight = weights[row * kBlock + key];
        sum[row].first += weight * v.first;
        sum[row].second += weight * v.second;
      }
    }
#pragma clang loop unroll(full)
    for (int row = 0; row < kTileRows; ++row)
      output[row][i] = sum[row].first, output[row][i + 1] = sum[row].second;
  }
#pragma clang loop unroll(full)
  for (int i = kPaired; i < kOutVectors; ++i) {
    Floats sum[kTileRows];
#pragma clang loop unroll(full)
    for (int row = 0; row < kTileRows; ++row) sum[row] = output[row][i];
#pragma clang loop unroll(full)
    for (int key = 0; key < kStreams; ++key) {
      const Floats v = load_behind_pairs<kHeadDimV>(values[key], i);
#pragma clang loop unroll(full)
      for (int row = 0; row < kTileRows; ++row) sum[row] += weights[row * kBlock + key] * v;
    }
#pragma clang loop unroll(full)
    for (int row = 0; row < kTileRows; ++row) output[row][i] = sum[row];
  }
}

template <int kCount>
struct TileRows {
  static constexpr int count = kCount;
};

// Calls tile(TileRows, first row) for `rows` rows: four at a time, then two and one, where the group ratio leaves as many.
template <class Tile>
inline void each_row_tile(int rows, const Tile& tile) {
  int row = 0;
  for (; row + 4 <= rows; row += 4) tile(TileRows<4>{}, row);
  if constexpr (kGqaRatio % 4 != 0)
    for (; row + 2 <= rows; row += 2) tile(TileRows<2>{}, row);
  if constexpr (kGqaRatio % 2 != 0)
    for (; row < rows; ++row) tile(TileRows<1>{}, row);
}

}  // namespace attune
