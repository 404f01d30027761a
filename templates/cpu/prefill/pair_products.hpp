// SPDX-License-Identifier: Apache-2.0
// The two products of attention from pairs of bf16: S^T = K Q^T and O^T += V^T P^T. Both multiply
// A, made of tiles, with B, whose rows are panels of pairs. A pair is two neighbours along the sum:
// columns of Q and K, or keys.
//
// | operand | layout                                                                           |
// |---------|----------------------------------------------------------------------------------|
// | K       | [key / 16][column / 32] tiles, each [16 keys][32 columns]                        |
// | Q^T     | [column / 2] panels of pairs                                                     |
// | V^T     | [column / 16][key / 32] tiles, each [16 columns][32 keys]                        |
// | P^T     | [key / 2] panels of pairs, in place of the scores                                |
//
// kTiles: 1 multiplies with AMX (tiles.hpp), 0 with VDPBF16PS (simd.hpp). Both sum in fp32 and
// take denormals as 0. P is rounded to bf16; the sum of a row is taken from weights in fp32.
#pragma once

#include "cpu/parts/pack_kv.hpp"
#include "cpu/parts/simd.hpp"
#include "cpu/parts/tile_need.hpp"  // where kTiles == 1
#include "cpu/parts/tiles.hpp"
#include "cpu/parts/transpose.hpp"

namespace attune {

constexpr int kPanelBytes = kPanelRows * 4;
constexpr int kTileColumns = kTileRowBytes / 2;  // elements of bf16
constexpr int kQkSteps = (kHeadDimQk + kTileColumns - 1) / kTileColumns;
constexpr int kKeySteps = kBlockN / kTileColumns;
constexpr int kOutputTiles = (kHeadDimV + kTileRows - 1) / kTileRows;
constexpr int kAcross = kTiles ? kPanelRows / kTileRows : 1;  // tiles that cover a panel
constexpr int kMostDown = 4 / kAcross;                        // four tiles of sums hide the latency
static_assert(!kTiles || kCpuHasTiles, "tiles = 1 is for CPUs with AMX and bf16");
static_assert(!kTiles || kPanelRows == 16 || kPanelRows == 32,
              "a panel must be as wide as one or two tiles");
static_assert(kBlockN % kTileColumns == 0, "block_n must be a multiple of 32");

// Tiles 0 to 3 hold sums, 4 and 5 hold A, 6 and 7 hold B.
template <bool kAdd, int... kSums>
struct TileProduct {
  template <int kSum>
  static char* place(char* c) {
    return c + kSum / kAcross * kTileRows * kPanelBytes + kSum % kAcross * kTileRowBytes;
  }
  template <int kSum>
  static void start(char* c) {
    if constexpr (kAdd)
      load_tile<kSum>(place<kSum>(c), kPanelBytes);
    else
      zero_tile<kSum>();
  }
  template <int kSum>
  static void add(const char* a, long long a_next) {
    constexpr int kDown = kSum / kAcross, kA = 4 + kDown % 2;
    if constexpr (kSum % kAcross == 0) load_tile<kA>(a + kDown * a_next, kTileRowBytes);
    multiply_tiles<kSum, kA, 6 + kSum % kAcross>();
  }
  static void run(const char* a, long long a_next, const char* b, int steps, char* c) {
    (start<kSums>(c), ...);
    for (int step = 0; step < steps; ++step) {
      load_tile<6>(b, kPanelBytes);
      if constexpr (kAcross > 1) load_tile<7>(b + kTileRowBytes, kPanelBytes);
      (add<kSums>(a, a_next), ...);
      a += kTileBytes;
      b += kTileRows * kPanelBytes;
    }
    (store_tile<kSums>(place<kSums>(c), kPanelBytes), ...);
  }
};
template <class T, T... kSums>
struct AddingTiles : TileProduct<true, kSums...> {};
template <class T, T... kSums>
struct FreshTiles : TileProduct<false, kSums...> {};

// Adds the products of a pair of A with a register of pairs.
inline Floats add_pair(unsigned a, Words b, Floats sum) {
  if constexpr (kCpuHasPairs) return add_pairs(Words(a), b, sum);
  sum += bits_as<float>(a << 16) * bits_as<Floats>(b << 16);
  return sum + bits_as<float>(a & 0xffff0000u) * bits_as<Floats>(b & 0xffff0000u);
}

// Multiplies kRows rows of one tile row of A. `a` is the first of them.
template <bool kAdd>
inline void multiply_rows(const char* a, const char* b, int steps, char* c) {
  Floats sum[kRows][kVectors] = {};
  if constexpr (kAdd) __builtin_memcpy(sum, c, sizeof(sum));
  for (int step = 0; step < steps; ++step, a += kTileBytes) {
    for (int pair = 0; pair < kTileRows; ++pair, b += kPanelBytes) {
      Words panel[kVectors];
      __builtin_memcpy(panel, b, sizeof(panel));
#pragma clang loop unroll(full)
      for (int r = 0; r < kRows; ++r) {
        unsigned of_row;
        __builtin_memcpy(&of_row, a + r * kTileRowBytes + pair * 4, sizeof(of_row));
#pragma clang loop unroll(full)
        for (int v = 0; v < kVectors; ++v) sum[r][v] = add_pair(of_row, panel[v], sum[r][v]);
      }
    }
  }
  __builtin_memcpy(c, sum, sizeof(sum));
}

// C[i] = sum over steps of A[i][step] * B[step] for `count` tiles i, which are `a_next` bytes
// apart; added to C if kAdd. C is whole panels.
template <bool kAdd>
inline void multiply(const char* a, long long a_next, int count, const char* b, int steps,
                     char* c) {
  if constexpr (kTiles) {
    int i = 0;
    for (; i + kMostDown <= count; i += kMostDown) {
      char* const to = c + i * kTileRows * kPanelBytes;
      if constexpr (kAdd)
        __make_integer_seq<AddingTiles, int, kMostDown * kAcross>::run(a + i * a_next, a_next, b,
                                                                       steps, to);
      else
        __make_integer_seq<FreshTiles, int, kMostDown * kAcross>::run(a + i * a_next, a_next, b,
                                                                      steps, to);
    }
    for (; i < count; ++i) {
      char* const to = c + i * kTileRows * kPanelBytes;
      if constexpr (kAdd)
        __make_integer_seq<AddingTiles, int, kAcross>::run(a + i * a_next, a_next, b, steps, to);
      else
        __make_integer_seq<FreshTiles, int, kAcross>::run(a + i * a_next, a_next, b, steps, to);
    }
  } else {
    for (int i = 0; i < count; ++i)
      for (int r = 0; r < kTileRows; r += kRows)
        multiply_rows<kAdd>(a + i * a_next + r * kTileRowBytes, b, steps,
                            c + (i * kTileRows + r) * kPanelBytes);
  }
}

// Packs one register of rows of Q, one row per lane. Columns past the last one are 0.
inline void pack_query_pairs(const Element<kDtypeQ>* const* rows, int vector, Panel* to) {
  constexpr int kWidth = kQkSteps * kTileColumns;
  alignas(64) Element<kDtypeQ> wide[kLanes][kWidth];
  for (int i = 0; i < kLanes; ++i) {
    __builtin_memcpy(wide[i], rows[i], kHeadDimQk * 2);
    if constexpr (kWidth > kHeadDimQk)
      __builtin_memset(wide[i] + kHeadDimQk, 0, (kWidth - kHeadDimQk) * 2);
  }
  for (int pair = 0; pair < kWidth / 2; pair += kLanes) {
    Floats pairs[kLanes];
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes; ++i) __builtin_memcpy(&pairs[i], wide[i] + 2 * pair, kVectorBytes);
    transpose(pairs);
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes; ++i) reinterpret_cast<Floats*>(&to[pair + i])[vector] = pairs[i];
  }
}

// Packs rows of K. Columns past the last one are 0; rows past `count` keep old values.
inline void pack_key_tiles(const Element<kDtypeKv>* from, long long row_stride, int count,
                           void* to) {
  constexpr int kLast = kHeadDimQk - (kQkSteps - 1) * kTileColumns;  // columns of the last step
  for (int n = 0; n < least(kRowsAhead, count); ++n) fetch_row<kHeadDimQk>(from + n * row_stride);
  for (int n = 0; n < count; ++n, from += row_stride) {
    if (n + kRowsAhead < count) fetch_row<kHeadDimQk>(from + kRowsAhead * row_stride);
    char* tile = static_cast<char*>(to) + n / kTileRows * kQkSteps * kTileBytes +
                 n % kTileRows * kTileRowBytes;
    for (int step = 0; step < kQkSteps - 1; ++step, tile += kTileBytes)
      __builtin_memcpy(tile, from + step * kTileColumns, kTileRowBytes);
    __builtin_memcpy(tile, from + (kQkSteps - 1) * kTileColumns, kLast * 2);
    if constexpr (kLast < kTileColumns)
      __builtin_memset(tile + kLast * 2, 0, (kTileColumns - kLast) * 2);
  }
}

constexpr Element<kDtypeKv> kNoRow[kHeadDimV] = {};

// Packs rows of V, transposed. Keys from `count` to the end of their tile are 0; columns past the
// last one keep old values, which reach only columns of O that are not stored.
inline void pack_value_tiles(const Element<kDtypeKv>* from, long long row_stride, int count,
                             void* to) {
  const int whole = (count + kTileColumns - 1) / kTileColumns * kTileColumns;
  for (int n = 0; n < least(2 * kLanes, count); ++n) fetch_row<kHeadDimV>(from + n * row_stride);
  for (int n = 0; n < whole; n += 2 * kLanes) {
    const Element<kDtypeKv>* rows[2 * kLanes];
    for (int i = 0; i < 2 * kLanes; ++i) {
      rows[i] = n + i < count ? from + (n + i) * row_stride : kNoRow;
      const int ahead = n + i + 2 * kLanes;
      if (ahead < count) fetch_row<kHeadDimV>(from + ahead * row_stride);
    }
    char* const tiles =
        static_cast<char*>(to) + n / kTileColumns * kTileBytes + n % kTileColumns * 2;
    for (int chunk = 0; chunk < kChunks<kHeadDimV>; ++chunk) {
      const int c = chunk_begin<kHeadDimV>(chunk);
      Floats pairs[kLanes];
#pragma clang loop unroll(full)
      for (int i = 0; i < kLanes; ++i) {
        HalfWords first, second;
        __builtin_memcpy(&first, rows[2 * i] + c, sizeof(first));
        __builtin_memcpy(&second, rows[2 * i + 1] + c, sizeof(second));
        pairs[i] = bits_as<Floats>(__builtin_convertvector(first, Words) |
                                   __builtin_convertvector(second, Words) << 16);
      }
      transpose(pairs);
#pragma clang loop unroll(full)
      for (int i = 0; i < kLanes; ++i)
        __builtin_memcpy(tiles + (c + i) / kTileRows * kKeySteps * kTileBytes +
                             (c + i) % kTileRows * kTileRowBytes,
                         &pairs[i], kVectorBytes);
    }
  }
}

// Computes q . k for keys [begin, end) of the block, and for the other keys of their tiles.
// scores[n] belongs to key n of the block.
inline void score_pairs(const void* keys, int begin, int end, const Panel* queries, Panel* scores) {
  const int first = begin / kTileRows, last = (end + kTileRows - 1) / kTileRows;
  constexpr int kNext = kQkSteps * kTileBytes;
  multiply<false>(static_cast<const char*>(keys) + first * kNext, kNext, last - first,
                  reinterpret_cast<const char*>(queries), kQkSteps,
                  reinterpret_cast<char*>(scores + first * kTileRows));
}

// Multiplies scores by the scale, and raises `largest` to the largest of them.
inline void scale_scores(int count, float scale, Panel* scores, Panel& largest) {
  for (int n = 0; n < count; ++n) {
    scores[n] *= scale;
    largest = larger(scores[n], largest);
  }
}

// Rounds weights to bf16, halves up. A NaN whose bits overflow becomes a number, but its row's sum
// is NaN.
inline Panel pair_of(Panel first, Panel second) {
  typedef unsigned PanelWords __attribute__((ext_vector_type(kPanelRows)));
  const PanelWords lower = (bits_as<PanelWords>(first) + 0x8000u) >> 16;
  const PanelWords upper = (bits_as<PanelWords>(second) + 0x8000u) & 0xffff0000u;
  return bits_as<Panel>(lower | upper);
}

// Adds the products of some keys of a step: places [begin, end). V of the others may not be finite,
// and 0 times NaN is NaN.
inline void add_part_of_step(const char* values, int begin, int end, const Panel* weights,
                             Panel* output) {
  typedef unsigned short Row __attribute__((ext_vector_type(kTileColumns)));
  Row counted;
  for (int i = 0; i < kTileColumns; ++i)
    counted[i] = static_cast<unsigned short>(begin <= i && i < end ? 0xffff : 0);
  alignas(64) Row part[kOutputTiles * kTileRows];
  for (int c = 0; c < kOutputTiles * kTileRows; ++c)
    part[c] =
        counted & *reinterpret_cast<const Row*>(values + c / kTileRows * kKeySteps * kTileBytes +
                                                c % kTileRows * kTileRowBytes);
  multiply<true>(reinterpret_cast<const char*>(part), kTileBytes, kOutputTiles,
                 reinterpret_cast<const char*>(weights), 1, reinterpret_cast<char*>(output));
}

// output = output * decay + V^T P^T for keys [begin, end) of the block. The weights of these keys
// are scores[begin] to scores[end - 1]; all scores are overwritten.
inline void output_pairs(const void* values, int begin, int end, Panel* scores, Panel decay,
                         Panel* output) {
  const int first = begin / kTileColumns, last = (end + kTileColumns - 1) / kTileColumns;
  for (int n = first * kTileColumns; n < begin; ++n) scores[n] = 0.0f;
  for (int n = end; n < last * kTileColumns; ++n) scores[n] = 0.0f;
  for (int n = first * kTileColumns; n < last * kTileColumns; n += 2)
    scores[n / 2] = pair_of(scores[n], scores[n + 1]);
  if (__builtin_reduce_and(decay == 1.0f) == 0)
    for (int c = 0; c < kHeadDimV; ++c) output[c] *= decay;
  const char* const tiles = static_cast<const char*>(values);
  for (int step = first; step < last;) {
    const int from = step * kTileColumns, whole = end / kTileColumns - step;
    if (from < begin || whole <= 0) {
      add_part_of_step(tiles + step * kTileBytes, begin - from, end - from,
                       scores + step * kTileRows, output);
      ++step;
    } else {
      multiply<true>(tiles + step * kTileBytes, kKeySteps * kTileBytes, kOutputTiles,
                     reinterpret_cast<const char*>(scores + step * kTileRows), whole,
                     reinterpret_cast<char*>(output));
      step += whole;
    }
  }
}

inline void begin_pairs() {
  if constexpr (kTiles) begin_tiles();
}
inline void end_pairs() {
  if constexpr (kTiles) end_tiles();
}

}  // namespace attune
