// SPDX-License-Identifier: Apache-2.0
// The vectors that the CPU kernels compute with, in clang's vector extensions: x86, Arm or anything else LLVM knows, no
// header needed. kVectorBytes comes from the rendered preamble: the widest register of the CPU that the code is made for.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr int kLanes = kVectorBytes / 4;

typedef float Floats __attribute__((ext_vector_type(kLanes)));
typedef int Ints __attribute__((ext_vector_type(kLanes)));  // also what comparisons give: 0 or -1
typedef unsigned int Words __attribute__((ext_vector_type(kLanes)));
typedef unsigned short HalfWords __attribute__((ext_vector_type(kLanes)));
typedef _Float16 Halves __attribute__((ext_vector_type(kLanes)));

constexpr float kInfinity = __builtin_inff();

template <class To, class From>
inline To bits_as(From value) {
  return __builtin_bit_cast(To, value);
}

inline Floats splat(float value) { return Floats(value); }

// a > b ? a : b is one instruction on x86, and drops a NaN in `a`; NaNs reach the result through exp2 instead.
inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

inline Ints lane_index() {
  Ints index;
  for (int i = 0; i < kLanes; ++i) index[i] = i;
  return index;
}

// 2^x for x <= 0; 0 below -126, so no denormal is ever made; NaN for NaN. x = n + f with f in [-0.5, 0.5]; adding 1.5 * 2^23
// rounds x to n and leaves n in the low bits of the sum. The polynomial is minimax of degree 5, relative error 1e-7.
inline Floats exp2_nonpositive(Floats x) {
  const Floats shifted = x + 12582912.0f;
  const Floats f = x - (shifted - 12582912.0f);
  Floats p = splat(1.3264727e-3f);
  p = p * f + 9.6715130e-3f;
  p = p * f + 5.5507336e-2f;
  p = p * f + 2.4022242e-1f;
  p = p * f + 6.9314700e-1f;
  p = p * f + 1.0f;
  const Ints scaled = bits_as<Ints>(p) + (bits_as<Ints>(shifted) << 23);
  return bits_as<Floats>(x < -126.0f ? Ints(0) : scaled);
}

// log2(x) for normal x > 0, by the series of atanh on a mantissa in [0.75, 1.5).
inline Floats log2_positive(Floats x) {
  const Ints bits = bits_as<Ints>(x);
  const Ints exponent = (bits - 0x3f400000) >> 23;
  const Floats mantissa = bits_as<Floats>(bits - (exponent << 23));
  const Floats s = (mantissa - 1.0f) / (mantissa + 1.0f);
  const Floats z = s * s;
  const Floats series = ((((z / 11 + 1.0f / 9) * z + 1.0f / 7) * z + 1.0f / 5) * z + 1.0f / 3) * z + 1.0f;
  return __builtin_convertvector(exponent, Floats) + series * s * 2.88539008f;  // 2 / ln 2
}

// bf16 by integer arithmetic: the upper half of an fp32.
inline Floats floats_of_bf16(HalfWords h) { return bits_as<Floats>(__builtin_convertvector(h, Words) << 16); }

inline HalfWords bf16_of_floats(Floats f) {
  const Words bits = bits_as<Words>(f);
  const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Words quiet_nan = (bits >> 16) | 0x40u;
  return __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded, HalfWords);
}

// fp16 by the CPU's own conversions; without any (x86 before F16C) the compiler calls a library function per element.
inline Floats floats_of_fp16(HalfWords h) { return __builtin_convertvector(bits_as<Halves>(h), Floats); }
inline HalfWords fp16_of_floats(Floats f) { return bits_as<HalfWords>(__builtin_convertvector(f, Halves)); }

template <Dtype kDtype>
struct ElementOf {
  using Type = unsigned short;
};
template <>
struct ElementOf<Dtype::kFp32> {
  using Type = float;
};
template <Dtype kDtype>
using Element = typename ElementOf<kDtype>::Type;

constexpr bool is_16_bit(Dtype dtype) { return dtype == Dtype::kBf16 || dtype == Dtype::kFp16; }

// kLanes consecutive elements as fp32, and back with round to nearest even.
template <Dtype kDtype>
inline Floats load(const Element<kDtype>* from) {
  if constexpr (kDtype == Dtype::kFp32) {
    Floats f;
    __builtin_memcpy(&f, from, sizeof(f));
    return f;
  } else {
    HalfWords h;
    __builtin_memcpy(&h, from, sizeof(h));
    return kDtype == Dtype::kBf16 ? floats_of_bf16(h) : floats_of_fp16(h);
  }
}

template <Dtype kDtype>
inline void store(Element<kDtype>* to, Floats f) {
  if constexpr (kDtype == Dtype::kFp32) {
    __builtin_memcpy(to, &f, sizeof(f));
  } else {
    const HalfWords h = kDtype == Dtype::kBf16 ? bf16_of_floats(f) : fp16_of_floats(f);
    __builtin_memcpy(to, &h, sizeof(h));
  }
}

// The first `count` of them, count in [0, kLanes]; the others read as 0 and are not written.
template <Dtype kDtype>
inline Floats load_part(const Element<kDtype>* from, int count) {
  Element<kDtype> part[kLanes] = {};
  for (int i = 0; i < count; ++i) part[i] = from[i];
  return load<kDtype>(part);
}

template <Dtype kDtype>
inline void store_part(Element<kDtype>* to, Floats f, int count) {
  Element<kDtype> part[kLanes];
  store<kDtype>(part, f);
  for (int i = 0; i < count; ++i) to[i] = part[i];
}

}  // namespace attune
