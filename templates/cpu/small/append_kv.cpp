// SPDX-License-Identifier: Apache-2.0
// append_kv on a CPU: writes rows of k_new and v_new into a cache. It rotates K by the angles of
// its positions, and can rotate q into o. Semantics and corner cases are those of
// cuda/small/append_kv.cu. Threads take rows in the order of memory. Each row is read before it is
// written, so that o may be q. No knobs.
#include "cpu/small/small_knobs.hpp"

#include "cpu/parts/none/features.hpp"
#include "cpu/small/elements.hpp"
#include "shared/append_rows.h"
#include "shared/key_factors.h"
#include "shared/listed_arguments.h"
#include "shared/nibble_rows.h"

namespace attune {

constexpr int kPairs = kTurned / 2;
constexpr bool kNarrow = kDtypeKv != kDtypeQ;  // the cache has 8 or 4 bits

struct Rule {
  static constexpr bool has_pages = kHasPages, has_begins = kHasBegins, is_turned = kTurned > 0;
  static constexpr int page_rows = kPageRows;
};

// Rounds to nearest even, clamped to [-128, 127]; NaN becomes 0.
inline unsigned char int8_code(float value) {
  if (!(value > -128.0f)) return value != value ? 0 : 0x80;
  const float nearest = __builtin_rintf(value < 127.0f ? value : 127.0f);
  return static_cast<unsigned char>(static_cast<signed char>(nearest));
}

// Rounds to nearest even. Values beyond the largest finite value become that value; NaN becomes
// 0x7f.
template <Dtype kDtype>
inline unsigned char code_of(float value) {
  if constexpr (kDtype == Dtype::kInt8) return int8_code(value);
  constexpr int kMantissa = kDtype == Dtype::kE4m3 ? 3 : 2;
  constexpr int kBias = kDtype == Dtype::kE4m3 ? 7 : 15;
  constexpr unsigned kLargest = kDtype == Dtype::kE4m3 ? 0x7e : 0x7b;
  constexpr int kShift = 23 - kMantissa;
  constexpr unsigned kFirstNormal = static_cast<unsigned>(127 - kBias + 1) << 23;
  // Below the first normal number, codes are multiples of one step. Adding this number rounds to
  // the step.
  constexpr unsigned kStep = static_cast<unsigned>(127 - kBias + 1 + kShift) << 23;
  const unsigned bits = __builtin_bit_cast(unsigned, value), magnitude = bits & 0x7fffffffu;
  const unsigned rounded =
      (magnitude + ((1u << (kShift - 1)) - 1) + (magnitude >> kShift & 1u)) >> kShift;
  const unsigned normal = rounded - (static_cast<unsigned>(127 - kBias) << kMantissa);
  const unsigned subnormal = __builtin_bit_cast(unsigned, __builtin_bit_cast(float, magnitude) +
                                                              __builtin_bit_cast(float, kStep)) -
                             kStep;
  const unsigned saturated = normal > kLargest ? kLargest : normal;
  const unsigned code = (magnitude < kFirstNormal ? subnormal : saturated) | (bits >> 24 & 0x80u);
  return static_cast<unsigned char>(magnitude > 0x7f800000u ? 0x7fu : code);
}

template <Dtype kDtype>
inline void set_cached(void* data, long long index, float value) {
  if constexpr (kNarrow && kDtype == kDtypeKv)
    static_cast<unsigned char*>(data)[index] = code_of<kDtype>(value);
  else
    set_element<kDtype>(data, index, value);
}

inline long long place_in(const OperandView& view, long long batch, long long row, long long head) {
  return batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
}

// Rotates a row by the angles of a position.
inline void turn(const AppendArgs& append, long long position, float* values) {
  const long long cos_row = position * append.cos.row_stride;
  const long long sin_row = position * append.sin.row_stride;
  for (int pair = 0; pair < kPairs; ++pair) {
    const float cos = element<kDtypeTable>(append.cos.data, cos_row + pair);
    const float sin = element<kDtypeTable>(append.sin.data, sin_row + pair);
    float& first = values[kInterleaved ? 2 * pair : pair];
    float& second = values[kInterleaved ? 2 * pair + 1 : pair + kPairs];
    const float turned = __builtin_fmaf(first, cos, -(second * sin));
    second = __builtin_fmaf(second, cos, first * sin);
    first = turned;
  }
}

// Returns the factor for a row's largest magnitude; NaN if the row has a NaN.
template <Dtype kCode, int kHeadDim>
inline float factor_of_row(const float* values) {
  unsigned largest = 0;
  for (int i = 0; i < kHeadDim; ++i) {
    const unsigned bits = __builtin_bit_cast(unsigned, values[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return factor_of_largest<kCode>(__builtin_bit_cast(float, largest));
}

// Loads a row of k_new, v_new or q, rotated if it turns.
template <int kHeadDim, bool kTurns>
inline void load_new_row(const AppendArgs& append, const void* from, long long first,
                         const AppendRow& row, float* values) {
  for (int i = 0; i < kHeadDim; ++i) values[i] = element<kDtypeQ>(from, first + i);
  if constexpr (kTurns && kTurned > 0) turn(append, row.position, values);
}

// Copies a row, divided by `factor` if the result has 8 bits. `made`: address for a factor that is
// computed from the row and used in place of `factor`; null if none is.
template <Dtype kTo, int kHeadDim, bool kTurns>
inline void copy_row(const AppendArgs& append, const void* from, long long first, float* made,
                     const AppendRow& row, void* to, long long place, float factor) {
  float values[kHeadDim];
  load_new_row<kHeadDim, kTurns>(append, from, first, row, values);
  if constexpr (kMakesFactors)
    if (made != nullptr) *made = factor = factor_of_row<kTo, kHeadDim>(values);
  for (int i = 0; i < kHeadDim; ++i)
    set_cached<kTo>(to, place + i, kNarrow && kTo == kDtypeKv ? values[i] / factor : values[i]);
}

// Stores a row as codes of 4 bits, and the factors of its groups of columns. `unit`: the factor of
// the head. A group with a NaN has the largest magnitude of its other columns.
template <int kHeadDim>
inline void pack_row(const float* values, float unit, unsigned char* codes,
                     unsigned char* factors) {
  for (int first = 0; first < kHeadDim; first += kGroupColumns) {
    float largest = 0;
    for (int i = first; i < first + kGroupColumns; ++i) {
      const float size = __builtin_fabsf(values[i]);
      largest = size > largest ? size : largest;  // a NaN is not larger
    }
    const float share = largest / (largest_code_value(kDtypeKv) * unit);
    const unsigned char factor = code_of<Dtype::kE4m3>(share >= 0 ? share : 0);  // 0 / 0 is NaN
    factors[first / kGroupColumns] = factor;
    const float divisor = group_factor(factor) * unit;
    const auto code = [&](int i) {
      return divisor == 0 ? 0 : nibble_code<kDtypeKv>(values[i] / divisor);
    };
    for (int i = first; i < first + kGroupColumns; i += 2)
      codes[i / 2] = static_cast<unsigned char>(code(i) | code(i + 1) << 4);
  }
}

// Writes one head of a row of k_new or v_new to its place in the cache. `groups`: the factors of
// groups of columns.
template <int kHeadDim, bool kTurns>
inline void append_head(const AppendArgs& append, const OperandView& from, const AppendRow& row,
                        const OperandView& to, const ScaleView& scale, const OperandView& groups,
                        int head) {
  float factor = 1;
  float* made = nullptr;
  if constexpr (kHeadFactors) factor = cache_factor(scale, head);
  if constexpr (kKeyFactors) factor = key_factor(scale, row.page, row.key, head);
  if constexpr (kMakesFactors) made = scale.data + key_factor_at(scale, row.page, row.key, head);
  if constexpr (kGroupFactors) {
    float values[kHeadDim];
    load_new_row<kHeadDim, kTurns>(append, from.data, place_in(from, row.batch, row.row, head), row,
                                   values);
    auto* const codes = static_cast<unsigned char*>(to.data);
    auto* const factors = static_cast<unsigned char*>(groups.data);
    return pack_row<kHeadDim>(values, factor, codes + place_in(to, row.page, row.key, head),
                              factors + place_in(groups, row.page, row.key, head));
  }
  copy_row<kDtypeKv, kHeadDim, kTurns>(append, from.data, place_in(from, row.batch, row.row, head),
                                       made, row, to.data, place_in(to, row.page, row.key, head),
                                       factor);
}

inline GroupFactorArgs groups_of(const KernelArguments& args) {
  if constexpr (kGroupFactors) return static_cast<const GroupedArguments&>(args).groups;
  return {};
}

inline void append_token(const KernelArguments& args, const AppendRow& row) {
  const AppendArgs& append = args.append;
  const GroupFactorArgs groups = groups_of(args);
  for (int head = 0; row.page >= 0 && head < args.num_heads_kv; ++head) {
    append_head<kHeadDimQk, true>(append, append.k_new, row, args.k, args.scales.k_scale, groups.k,
                                  head);
    append_head<kHeadDimV, false>(append, append.v_new, row, args.v, args.scales.v_scale, groups.v,
                                  head);
  }
  for (int head = 0; kTurnsQ && head < args.num_heads_q; ++head) {
    const long long o = place_in(args.o, row.batch, row.row, head);
    if (row.is_turned)
      copy_row<kDtypeO, kHeadDimQk, true>(append, args.q.data,
                                          place_in(args.q, row.batch, row.row, head), nullptr, row,
                                          args.o.data, o, 1);
    else
      for (int i = 0; i < kHeadDimQk; ++i) set_element<kDtypeO>(args.o.data, o + i, 0);
  }
}

extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  const AppendRows rows = append_rows(Rule{}, args, args.cache, args.append);
  const long long end = rows.first + rows.count * (thread + 1) / num_threads;
  for (long long i = rows.first + rows.count * thread / num_threads; i < end; ++i)
    append_token(args, append_row(Rule{}, args, args.cache, args.append, static_cast<int>(i)));
}

}  // namespace attune
