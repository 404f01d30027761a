// SPDX-License-Identifier: Apache-2.0
// The two products of decode_cpu as register tiles over rows of q that share a head of K. A tile
// reads and converts each vector of K or V once for all these rows. Lanes are columns: q . k is
// first summed lane by lane, then across the lanes of several products at once.
#pragma once

#include "cpu/decode/decode_rows.hpp"
#include "cpu/parts/simd.hpp"
#include "shared/layouts/decode_layout.h"

namespace attune {

constexpr int kBlock = kDecodeBlockKeys, kMostStepKeys = 16;
static_assert(kBlock % kMostStepKeys == 0 && kMostStepKeys % kPanelRows == 0);

// True if each row of K serves a single row of q. Then there is little to compute, and the CPU's
// prefetchers load rows in time if keys are read as a few streams that run from end to end.
constexpr bool kFarApart = kGqaRatio == 1;

// Returns the number of keys per step. The rows of these keys for one head, 2 KB, are read
// together, so that rows of q and O are read once for several keys.
template <int kHeadDim>
constexpr int keys_of_step() {
  constexpr int kRowBytes = kCacheRowBytes<kHeadDim>;
  return kFarApart || kRowBytes > 256 ? 4 : kRowBytes > 128 ? 8 : kMostStepKeys;
}
constexpr int kStepKeys = keys_of_step<kHeadDimQk>(), kStepValues = keys_of_step<kHeadDimV>();

// The type that products read: the cache's type, or fp32 after narrow rows are converted.
constexpr Dtype kDtypeRead = kNarrow ? Dtype::kFp32 : kDtypeKv;
using KvElement = Element<kDtypeRead>;

// Number of pairs of whole vectors in a row. A pair of bf16 vectors is not reordered when it is
// read: even elements form its first vector and odd elements its second. Rows of q and O are
// reordered to match.
template <int kHeadDim>
constexpr int kPairs = kHeadDim / (2 * kLanes);
constexpr bool kDealt = kDtypeRead == Dtype::kBf16;

// True if products multiply bf16 by bf16: q as given, and rounded weights. Then a pair of vectors
// of q is packed into the first of them. For V, elements of two keys are interleaved, which gives
// rows of O another order.
constexpr bool kBf16Products =
    kCpuHasPairs && kDtypeQ == Dtype::kBf16 && kDtypeRead == Dtype::kBf16;

struct TwoVectors {
  Floats first, second;
};

inline Words load_words(const KvElement* from) {
  Words words;
  __builtin_memcpy(&words, from, sizeof(words));
  return words;
}

inline TwoVectors load_pair(const KvElement* from) {
  if constexpr (kDealt) {
    const Words words = load_words(from);
    return {bits_as<Floats>(words << 16), bits_as<Floats>(words & 0xffff0000u)};
  } else {
    return {load<kDtypeRead>(from), load<kDtypeRead>(from + kLanes)};
  }
}

// Returns vector `i` of a row; the vector follows the row's pairs.
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
  // For products of pairs: packs a row of q, as given, into the first vector.
  static TwoVectors pack(TwoVectors pair) {
    const TwoVectors dealt = deal(pair);
    return {bits_as<Floats>(bits_as<Words>(dealt.first) >> 16 |
                            (bits_as<Words>(dealt.second) & 0xffff0000u)),
            0.0f};
  }
  // For products of pairs: moves each eight columns to four lanes of the first vector and four
  // lanes of the second (see beside).
  static TwoVectors gather_eights(TwoVectors pair) {
    return {__builtin_shufflevector(pair.first, pair.second, place_of(kIndex)...),
            __builtin_shufflevector(pair.first, pair.second, place_of(kIndex + kLanes)...)};
  }
  // Returns, in each part of kPart lanes, the sum of the halves of x's part, then the sum of the
  // halves of y's part. One operand of the addition is a blend, so that only the other needs a
  // shuffle. CPUs execute fewer shuffles than blends at a time.
  template <int kPart>
  static Floats fold(Floats x, Floats y) {
    constexpr int kHalf = kPart / 2;
    return __builtin_shufflevector(x, y, (kIndex % kPart < kHalf ? kIndex : kIndex + kLanes)...) +
           __builtin_shufflevector(
               x, y, (kIndex % kPart < kHalf ? kIndex + kHalf : kIndex - kHalf + kLanes)...);
  }

 private:
  static constexpr int place_of(int column) {
    return column % 8 / 4 * kLanes + column / 8 * 4 + column % 4;
  }
};
template <class T, T... kIndex>
using PairIndicesOf = PairIndices<kIndex...>;
using Pairing = __make_integer_seq<PairIndicesOf, int, kLanes>;

constexpr auto kOrderOfQ = kBf16Products ? Pairing::pack : Pairing::deal;
constexpr auto kOrderBack = kBf16Products ? Pairing::gather_eights : Pairing::gather;

// Puts a row of q into the order in which pairs are read (kOrderOfQ), or a row of O back into the
// order of memory (kOrderBack).
template <int kHeadDim, TwoVectors (*kOrder)(TwoVectors)>
inline void order_row(Floats* row) {
  if constexpr (kDealt)
    for (int i = 0; i < 2 * kPairs<kHeadDim>; i += 2) {
      const TwoVectors pair = kOrder({row[i], row[i + 1]});
      row[i] = pair.first, row[i + 1] = pair.second;
    }
}

// Returns a vector whose lane i is the sum of vector i.
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

// Interleaves the 16-bit elements of two keys, column by column. Works in parts of eight columns;
// the first result has the lower halves, the second the upper (one instruction each).
template <int... kIndex>
struct BesideIndices {
  static TwoVectors beside(Words a, Words b) {
    typedef unsigned short Elements __attribute__((ext_vector_type(2 * kLanes)));
    const auto x = bits_as<Elements>(a), y = bits_as<Elements>(b);
    return {bits_as<Floats>(__builtin_shufflevector(x, y, place_of(kIndex, 0)...)),
            bits_as<Floats>(__builtin_shufflevector(x, y, place_of(kIndex, 4)...))};
  }

 private:
  static constexpr int place_of(int index, int half) {
    return index / 8 * 8 + index % 8 / 2 + half + index % 2 * 2 * kLanes;
  }
};
template <class T, T... kIndex>
using BesideIndicesOf = BesideIndices<kIndex...>;
using Beside = __make_integer_seq<BesideIndicesOf, int, 2 * kLanes>;

// Computes products of kTileRows rows of q and kTileKeys keys, not yet summed across lanes:
// sums[row * kTileKeys + key].
template <int kTileRows, int kTileKeys>
inline void dot_tile(const Floats (*q)[kQkVectors], const KvElement* const* keys, Floats* sums) {
  Floats sum[kTileRows][kTileKeys] = {};
  constexpr int kPaired = 2 * kPairs<kHeadDimQk>;
  for (int i = 0; i < kPaired; i += 2) {
#pragma clang loop unroll(full)
    for (int key = 0; key < kTileKeys; ++key) {
      if constexpr (kBf16Products) {
        const Words k = load_words(keys[key] + i * kLanes);
#pragma clang loop unroll(full)
        for (int row = 0; row < kTileRows; ++row)
          sum[row][key] = add_pairs(bits_as<Words>(q[row][i]), k, sum[row][key]);
        continue;
      }
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
    for (int key = 0; key < kTileKeys; ++key) sums[row * kTileKeys + key] = sum[row][key];
}

// Computes q . k of kTileRows rows with the keys of a step: scores[row * kBlock + key].
template <int kTileRows>
inline void dot_rows(const Floats (*q)[kQkVectors], const KvElement* const* keys, float* scores) {
  constexpr int kRegisters = kLanes > 8 ? 16 : 8;  // that hold sums
  constexpr int kMost = kRegisters / kTileRows, kTileKeys = kMost < kStepKeys ? kMost : kStepKeys;
  constexpr int kSums = kTileRows * kTileKeys, kWhole = (kSums + kLanes - 1) / kLanes * kLanes;
  for (int key = 0; key < kStepKeys; key += kTileKeys) {
    Floats sums[kWhole];
    for (int i = kSums; i < kWhole; ++i) sums[i] = 0.0f;
    dot_tile<kTileRows, kTileKeys>(q, keys + key, sums);
    float totals[kWhole];
#pragma clang loop unroll(full)
    for (int i = 0; i < kWhole; i += kLanes) store<Dtype::kFp32>(totals + i, sums_of(sums + i));
#pragma clang loop unroll(full)
    for (int row = 0; row < kTileRows; ++row)
      __builtin_memcpy(scores + row * kBlock + key, totals + row * kTileKeys,
                       kTileKeys * sizeof(float));
  }
}

// Stores weights of a row over its scores, in the type that products read: bf16 if pairs are
// multiplied.
inline void store_weights(float* scores, int place, Floats weights) {
  if constexpr (kBf16Products) {
    store<Dtype::kBf16>(reinterpret_cast<unsigned short*>(scores) + place, weights);
  } else {
    store<Dtype::kFp32>(scores + place, weights);
  }
}

// Returns the weights from key `key` of the block on, for add_rows. `key` must be even.
inline const float* weights_from(const float* scores, int key) {
  return scores + key / (kBf16Products ? 2 : 1);
}

inline float weight_of(const float* weights, int key) {
  if constexpr (!kBf16Products) return weights[key];
  const auto both = bits_as<unsigned>(weights[key / 2]);
  return bits_as<float>(key % 2 == 0 ? both << 16 : both & 0xffff0000u);
}

// Adds the weighted rows of V of two keys to `sum`: for each row two vectors, from `column` on.
template <int kTileRows>
inline void add_two_keys(const float* weights, const KvElement* const* values, int column,
                         TwoVectors (&sum)[kTileRows]) {
  if constexpr (kBf16Products) {
    const TwoVectors v =
        Beside::beside(load_words(values[0] + column), load_words(values[1] + column));
#pragma clang loop unroll(full)
    for (int row = 0; row < kTileRows; ++row) {
      const Words weight = bits_as<unsigned>(weights[row * kBlock]);
      sum[row].first = add_pairs(weight, bits_as<Words>(v.first), sum[row].first);
      sum[row].second = add_pairs(weight, bits_as<Words>(v.second), sum[row].second);
    }
  } else {
#pragma clang loop unroll(full)
    for (int key = 0; key < 2; ++key) {
      const TwoVectors v = load_pair(values[key] + column);
#pragma clang loop unroll(full)
      for (int row = 0; row < kTileRows; ++row) {
        const float weight = weights[row * kBlock + key];
        sum[row].first += weight * v.first;
        sum[row].second += weight * v.second;
      }
    }
  }
}

// Adds weights . v of the keys of a step to kTileRows rows of output. weights[row * kBlock] is a
// row's weight of the first key.
template <int kTileRows>
inline void add_rows(const float* weights, const KvElement* const* values,
                     Floats (*output)[kOutVectors]) {
  constexpr int kPaired = 2 * kPairs<kHeadDimV>;
  for (int i = 0; i < kPaired; i += 2) {
    TwoVectors sum[kTileRows];
#pragma clang loop unroll(full)
    for (int row = 0; row < kTileRows; ++row) sum[row] = {output[row][i], output[row][i + 1]};
    for (int key = 0; key < kStepValues; key += 2)
      add_two_keys<kTileRows>(weights_from(weights, key), values + key, i * kLanes, sum);
#pragma clang loop unroll(full)
    for (int row = 0; row < kTileRows; ++row)
      output[row][i] = sum[row].first, output[row][i + 1] = sum[row].second;
  }
#pragma clang loop unroll(full)
  for (int i = kPaired; i < kOutVectors; ++i) {
    Floats sum[kTileRows];
#pragma clang loop unroll(full)
    for (int row = 0; row < kTileRows; ++row) sum[row] = output[row][i];
    for (int key = 0; key < kStepValues; ++key) {
      const Floats v = load_behind_pairs<kHeadDimV>(values[key], i);
#pragma clang loop unroll(full)
      for (int row = 0; row < kTileRows; ++row)
        sum[row] += weight_of(weights + row * kBlock, key) * v;
    }
#pragma clang loop unroll(full)
    for (int row = 0; row < kTileRows; ++row) output[row][i] = sum[row];
  }
}

template <int kCount>
struct TileRows {
  static constexpr int count = kCount;
};

// Calls tile(TileRows, first row) for `rows` rows: four at a time, then two, then one, as far as
// the group ratio needs them.
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
