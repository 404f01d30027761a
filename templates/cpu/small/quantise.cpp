// SPDX-License-Identifier: Apache-2.0
// quantise: o = round(rotate(q) / factor) in e4m3 or e5m2 on a CPU, with a factor for each block of
// kScaleBlockQ rows of a head (0: all rows); semantics and corner cases are those of
// cuda/small/quantise.cu. A row is processed eight elements at a time. One thread handles a block
// of rows.
//
// q: fp32, bf16 or fp16, [batch, seqlen, heads, head_dim]; o by rows or transposed (kVLayout).
//   kKeep      1: the rows of a block stay in the workspace, fp32, between finding their factor and
//              rounding; 0: they are loaded (and rotated) again
//   kTileRows  transposed output only: rows whose codes are written together
// Workspace: kScratchFloats per thread.
#include "cpu/small/small_knobs.hpp"
#include "shared/attention_enums.h"
#include "shared/kernel_arguments.h"
#include "shared/layouts/quantise_layout.h"

namespace attune {

constexpr int kDim = kHeadDimQk;

// Eight elements. Every row consists of such groups; the compiler splits or joins them to fit the
// CPU's registers.
typedef float Floats __attribute__((ext_vector_type(8)));
typedef unsigned Words __attribute__((ext_vector_type(8)));
typedef unsigned short HalfWords __attribute__((ext_vector_type(8)));
typedef _Float16 Halves __attribute__((ext_vector_type(8)));
typedef unsigned char Codes __attribute__((ext_vector_type(8)));

template <class To, class From>
inline To bits_as(From value) {
  return __builtin_bit_cast(To, value);
}

template <class T>
inline T load(const void* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}
template <class T>
inline void store(void* to, T value) {
  __builtin_memcpy(to, &value, sizeof(value));
}

inline Floats load_eight(const void* data, long long index) {
  if constexpr (kDtypeQ == Dtype::kFp32)
    return load<Floats>(static_cast<const float*>(data) + index);
  const HalfWords halves = load<HalfWords>(static_cast<const unsigned short*>(data) + index);
  if constexpr (kDtypeQ == Dtype::kBf16)
    return bits_as<Floats>(__builtin_convertvector(halves, Words) << 16);
  return __builtin_convertvector(bits_as<Halves>(halves), Floats);
}

// Loads one row. Magnitudes below 2^-126 become zero.
inline void load_row(const void* data, long long index, float* row) {
  for (int i = 0; i < kDim; i += 8) {
    const Words bits = bits_as<Words>(load_eight(data, index + i));
    const Words sign = bits & 0x80000000u;
    store(row + i, (bits ^ sign) < 0x00800000u ? sign : bits);
  }
}

// Computes one butterfly over the highest bit of the index, which becomes the lowest bit.
inline void butterfly(const float* from, float* to) {
  for (int i = 0; i < kDim / 2; i += 8) {
    const Floats low = load<Floats>(from + i), high = load<Floats>(from + i + kDim / 2);
    const Floats sum = low + high, difference = low - high;
    store(to + 2 * i, __builtin_shufflevector(sum, difference, 0, 8, 1, 9, 2, 10, 3, 11));
    store(to + 2 * i + 8, __builtin_shufflevector(sum, difference, 4, 12, 5, 13, 6, 14, 7, 15));
  }
}

constexpr float reciprocal_square_root(int power_of_two) {
  double root = 1.0;
  for (int left = power_of_two; left > 1; left /= 2) root *= 0.70710678118654752440;
  return static_cast<float>(root);
}

// Multiplies the row by the orthonormal Hadamard matrix. Each butterfly rotates the bits of an
// element's index by one, so that after all butterflies every element is back at its place.
inline void rotate_row(float* row) {
  if constexpr (kRotation == Rotation::kHadamard) {
    float other[kDim];
    int bit = 1;
    for (; bit * 2 < kDim; bit *= 4) {
      butterfly(row, other);
      butterfly(other, row);
    }
    if (bit < kDim) butterfly(row, other);
    const float* last = bit < kDim ? other : row;
    constexpr float kScale = reciprocal_square_root(kDim);
    for (int i = 0; i < kDim; i += 8) store(row + i, load<Floats>(last + i) * kScale);
  }
}

// Compares magnitudes as integers, which have the same order. NaN and infinity are left out.
inline Words largest_magnitudes(const float* row, Words largest) {
  for (int i = 0; i < kDim; i += 8) {
    const Words magnitude = load<Words>(row + i) & 0x7fffffffu;
    const Words finite = magnitude < 0x7f800000u ? magnitude : Words(0);
    largest = finite > largest ? finite : largest;
  }
  return largest;
}

inline float factor_of(Words largest) {
  unsigned all = 0;
  for (int i = 0; i < 8; ++i) all = largest[i] > all ? largest[i] : all;
  if (all < 0x00800000u) return 1.0f;
  const float factor = bits_as<float>(all) / largest_code_value(kDtypeO);
  return factor < kSmallestFactor ? kSmallestFactor : factor;
}

// Rounds to nearest even. Finite values beyond the largest finite value become that value; NaN
// becomes 0x7f. Infinity becomes the type's infinity, or NaN for e4m3.
inline Codes codes_of(Floats values) {
  constexpr int kMantissa = kDtypeO == Dtype::kE4m3 ? 3 : 2;
  constexpr int kBias = kDtypeO == Dtype::kE4m3 ? 7 : 15;
  constexpr unsigned kLargest = kDtypeO == Dtype::kE4m3 ? 0x7e : 0x7b;
  constexpr int kShift = 23 - kMantissa;
  constexpr unsigned kFirstNormal = static_cast<unsigned>(127 - kBias + 1) << 23;
  // Below the first normal number, codes are multiples of one step. Adding this number rounds to
  // the step.
  constexpr unsigned kStep = static_cast<unsigned>(127 - kBias + 1 + kShift) << 23;
  const Words bits = bits_as<Words>(values);
  const Words magnitude = bits & 0x7fffffffu;
  const Words rounded =
      (magnitude + ((1u << (kShift - 1)) - 1) + (magnitude >> kShift & 1u)) >> kShift;
  const Words normal = rounded - (static_cast<unsigned>(127 - kBias) << kMantissa);
  const Words subnormal =
      bits_as<Words>(bits_as<Floats>(magnitude) + bits_as<float>(kStep)) - kStep;
  const Words saturated = normal > kLargest ? Words(kLargest) : normal;
  const Words code = (magnitude < kFirstNormal ? subnormal : saturated) | (bits >> 24 & 0x80u);
  Words special = 0x7f;
  if constexpr (kDtypeO == Dtype::kE5m2)
    special = magnitude > 0x7f800000u ? special : (0x7cu | (bits >> 24 & 0x80u));
  return __builtin_convertvector(magnitude >= 0x7f800000u ? special : code, Codes);
}

inline void round_row(const float* row, float inverse, unsigned char* codes) {
  for (int i = 0; i < kDim; i += 8) store(codes + i, codes_of(load<Floats>(row + i) * inverse));
}

// Rows [first, first + count) of one head, which share a factor.
struct Block {
  int batch, head;
  long long index, first;
  int count;
};

inline const float* rotated_row(const KernelArguments& args, const Block& block, int row,
                                float* to) {
  load_row(args.q.data,
           block.batch * args.q.batch_stride + block.head * args.q.head_stride +
               (block.first + row) * args.q.row_stride,
           to);
  rotate_row(to);
  return to;
}

inline float find_factor(const KernelArguments& args, const Block& block, float* scratch) {
  Words largest = 0;
  for (int row = 0; row < block.count; ++row) {
    float* to = kKeep ? scratch + static_cast<long long>(row) * kDim : scratch;
    largest = largest_magnitudes(rotated_row(args, block, row, to), largest);
  }
  return factor_of(largest);
}

inline const float* row_again(const KernelArguments& args, const Block& block, int row,
                              float* scratch) {
  if constexpr (kKeep != 0) return scratch + static_cast<long long>(row) * kDim;
  return rotated_row(args, block, row, scratch);
}

inline void store_rows(const KernelArguments& args, const Block& block, float inverse,
                       float* scratch) {
  unsigned char* o = static_cast<unsigned char*>(args.o.data) + block.batch * args.o.batch_stride +
                     block.head * args.o.head_stride + block.first * args.o.row_stride;
  for (int row = 0; row < block.count; ++row)
    round_row(row_again(args, block, row, scratch), inverse, o + row * args.o.row_stride);
}

// Transposes eight rows of eight codes. Interleaving row i with row i + 4 rotates the bits of (row,
// column) by one; doing so three times swaps row and column.
inline void transpose(Codes (&rows)[8]) {
#pragma clang loop unroll(full)
  for (int step = 0; step < 3; ++step) {
    Codes mixed[8];
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; ++i) {
      mixed[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      mixed[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; ++i) rows[i] = mixed[i];
  }
}

// Stores rows [0, rows) of codes as columns at `o`, whose rows are adjacent.
inline void store_columns(const unsigned char (&codes)[kTileRows][kDim], int rows, unsigned char* o,
                          long long stride) {
  for (int column = 0; column < kDim; column += 8) {
    int row = 0;
    for (; row + 8 <= rows; row += 8) {
      Codes eight[8];
      for (int i = 0; i < 8; ++i) eight[i] = load<Codes>(codes[row + i] + column);
      transpose(eight);
      for (int i = 0; i < 8; ++i) store(o + (column + i) * stride + row, eight[i]);
    }
    for (; row < rows; ++row)
      for (int i = 0; i < 8; ++i) o[(column + i) * stride + row] = codes[row][column + i];
  }
}

inline void store_transposed(const KernelArguments& args, const Block& block, float inverse,
                             float* scratch) {
  unsigned char* o = static_cast<unsigned char*>(args.o.data) + block.batch * args.o.batch_stride +
                     block.head * args.o.head_stride + block.first;
  unsigned char codes[kTileRows][kDim];
  for (int begin = 0; begin < block.count; begin += kTileRows) {
    const int rows = block.count - begin < kTileRows ? block.count - begin : kTileRows;
    for (int row = 0; row < rows; ++row)
      round_row(row_again(args, block, begin + row, scratch), inverse, codes[row]);
    store_columns(codes, rows, o + begin, args.o.row_stride);
  }
}

inline void quantise_block(const KernelArguments& args, const Block& block, float* scratch) {
  const float factor = find_factor(args, block, scratch);
  const ScaleView& scale = args.scales.o_scale;
  scale.data[block.batch * scale.batch_stride + block.head * scale.head_stride +
             block.index * scale.block_stride] = factor;
  if constexpr (kVLayout == VLayout::kTransposed)
    store_transposed(args, block, 1.0f / factor, scratch);
  else
    store_rows(args, block, 1.0f / factor, scratch);
}

extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  const long long rows = kScaleBlockQ > 0 ? kScaleBlockQ : args.seqlen_q;
  if (rows == 0) return;
  const long long blocks = (args.seqlen_q + rows - 1) / rows;
  float* scratch = static_cast<float*>(args.workspace) + thread * kScratchFloats;
  for (long long i = thread; i < blocks * args.batch * args.num_heads_q; i += num_threads) {
    const long long list = i / args.num_heads_q;
    const long long first = list % blocks * rows;
    const long long left = args.seqlen_q - first;
    quantise_block(args,
                   {static_cast<int>(list / blocks), static_cast<int>(i % args.num_heads_q),
                    list % blocks, first, static_cast<int>(left < rows ? left : rows)},
                   scratch);
  }
}

}  // namespace attune
