// SPDX-License-Identifier: Apache-2.0
// The vectors of the CPU kernels, in clang's vector extensions. They work on x86, Arm and any other
// LLVM target, without headers. kVectorBytes comes from the rendered preamble: the widest register
// of the target CPU.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr int kLanes = kVectorBytes / 4;
constexpr int kPanelRows = kVectors * kLanes;

typedef float Floats __attribute__((ext_vector_type(kLanes)));  // one register
typedef unsigned int Words __attribute__((ext_vector_type(kLanes)));
typedef unsigned short HalfWords __attribute__((ext_vector_type(kLanes)));
typedef unsigned char Bytes __attribute__((ext_vector_type(kLanes)));
typedef int Ints __attribute__((ext_vector_type(kLanes)));
typedef _Float16 Halves __attribute__((ext_vector_type(kLanes)));
// One value for each query of a panel: kVectors registers. LLVM splits it late, which keeps compile
// time low.
typedef float Panel __attribute__((ext_vector_type(kPanelRows)));
typedef int PanelInts
    __attribute__((ext_vector_type(kPanelRows)));  // also the result of comparisons: 0 or -1

constexpr float kInfinity = __builtin_inff();

template <class To, class From>
inline To bits_as(From value) {
  return __builtin_bit_cast(To, value);
}

// Returns a > b ? a : b, which is one instruction on x86. It drops a NaN in `a`; NaNs reach the
// result through exp2 instead.
inline Panel larger(Panel a, Panel b) { return a > b ? a : b; }

// Returns 2^x for x <= 0. The result is 0 for x below -126, so that it is never denormal, and NaN
// for any NaN. x = n + f with f in [-0.5, 0.5]; adding 1.5 * 2^23 + 127 rounds x to n and leaves n
// + 127, the exponent of 2^n (exponent 0 gives the number 0), in the low bits of the sum. The
// polynomial is minimax of degree 5, with relative error 1e-7.
inline Panel exp2_nonpositive(Panel any) {
  constexpr float kShift = 12582912.0f + 127.0f;
  const Panel x = any < -126.0f ? Panel(-127.0f) : any;
  const Panel shifted = x + kShift;
  const Panel f = x - (shifted - kShift);
  Panel p = 1.3264727e-3f;
  p = p * f + 9.6715130e-3f;
  p = p * f + 5.5507336e-2f;
  p = p * f + 2.4022242e-1f;
  p = p * f + 6.9314700e-1f;
  p = p * f + 1.0f;
  return p * bits_as<Panel>(bits_as<PanelInts>(shifted) << 23);
}

// Returns log2(x) for normal x > 0, with the series of atanh on a mantissa in [0.75, 1.5).
inline Panel log2_positive(Panel x) {
  const PanelInts bits = bits_as<PanelInts>(x);
  const PanelInts exponent = (bits - 0x3f400000) >> 23;
  const Panel mantissa = bits_as<Panel>(bits - (exponent << 23));
  const Panel s = (mantissa - 1.0f) / (mantissa + 1.0f);
  const Panel z = s * s;
  const Panel series =
      ((((z / 11 + 1.0f / 9) * z + 1.0f / 7) * z + 1.0f / 5) * z + 1.0f / 3) * z + 1.0f;
  return __builtin_convertvector(exponent, Panel) + series * s * 2.88539008f;  // 2 / ln 2
}

// Converts bf16 with integer arithmetic: it is the upper half of an fp32.
inline Floats floats_of_bf16(HalfWords h) {
  return bits_as<Floats>(__builtin_convertvector(h, Words) << 16);
}

inline HalfWords bf16_of_floats(Floats f) {
  const Words bits = bits_as<Words>(f);
  const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Words quiet_nan = (bits >> 16) | 0x40u;
  return __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded,
                                 HalfWords);
}

// Converts fp16 with the CPU's instructions. If it has none (x86 before F16C), the compiler calls a
// library function per element.
inline Floats floats_of_fp16(HalfWords h) {
  return __builtin_convertvector(bits_as<Halves>(h), Floats);
}
inline HalfWords fp16_of_floats(Floats f) {
  return bits_as<HalfWords>(__builtin_convertvector(f, Halves));
}

// Converts e4m3 and e5m2 with integer arithmetic: shifts the bits to their place and exchanges the
// exponent's bias. Below the smallest normal number the bits are a number of smallest steps.
template <Dtype kDtype>
inline Floats floats_of_8_bits(Bytes b) {
  constexpr int kMantissa = kDtype == Dtype::kE4m3 ? 3 : 2;
  constexpr int kBias = kDtype == Dtype::kE4m3 ? 7 : 15;
  constexpr float kStep = kDtype == Dtype::kE4m3 ? 0x1p-9f : 0x1p-16f;
  constexpr unsigned kSpecial = kDtype == Dtype::kE4m3 ? 0x7fu : 0x7cu;  // NaN; infinity and NaN
  const Words word = __builtin_convertvector(b, Words);
  const Words magnitude = word & 0x7fu;
  const Words normal = (magnitude << (23 - kMantissa)) + ((127u - kBias) << 23);
  const Floats small = __builtin_convertvector(bits_as<Ints>(magnitude), Floats) * kStep;
  Words bits = magnitude < (1u << kMantissa) ? bits_as<Words>(small) : normal;
  bits = magnitude >= kSpecial ? 0x7f800000u | ((magnitude & 3u) << 21) : bits;
  return bits_as<Floats>(bits | ((word & 0x80u) << 24));
}

inline Floats floats_of_int8(Bytes b) {
  const Words high = __builtin_convertvector(b, Words) << 24;
  return __builtin_convertvector(bits_as<Ints>(high) >> 24, Floats);
}

template <Dtype kDtype>
struct ElementOf {
  using Type = unsigned short;
};
template <>
struct ElementOf<Dtype::kE4m3> {
  using Type = unsigned char;
};
template <>
struct ElementOf<Dtype::kE5m2> {
  using Type = unsigned char;
};
template <>
struct ElementOf<Dtype::kInt8> {
  using Type = unsigned char;
};
template <>
struct ElementOf<Dtype::kInt4> {  // two codes
  using Type = unsigned char;
};
template <>
struct ElementOf<Dtype::kE2m1> {
  using Type = unsigned char;
};
template <>
struct ElementOf<Dtype::kFp32> {
  using Type = float;
};
template <Dtype kDtype>
using Element = typename ElementOf<kDtype>::Type;

constexpr bool is_8_bit(Dtype dtype) { return dtype == Dtype::kE4m3 || dtype == Dtype::kE5m2; }

// load() reads kLanes consecutive elements as fp32; store() writes them back, rounded to nearest
// even (not to 8 bits).
template <Dtype kDtype>
inline Floats load(const Element<kDtype>* from) {
  if constexpr (kDtype == Dtype::kFp32) {
    Floats f;
    __builtin_memcpy(&f, from, sizeof(f));
    return f;
  } else if constexpr (kDtype == Dtype::kInt8) {
    Bytes b;
    __builtin_memcpy(&b, from, sizeof(b));
    return floats_of_int8(b);
  } else if constexpr (is_8_bit(kDtype)) {
    Bytes b;
    __builtin_memcpy(&b, from, sizeof(b));
    return floats_of_8_bits<kDtype>(b);
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

// Products of pairs of bf16 elements, if the CPU has them (AVX512_BF16). Lane i multiplies elements
// 2 i and 2 i + 1 of both operands and adds both products to its fp32 sum. Denormals count as 0.
#ifdef __AVX512BF16__
constexpr bool kCpuHasPairs = kVectorBytes == 64;
#else
constexpr bool kCpuHasPairs = false;
#endif

inline Floats add_pairs([[maybe_unused]] Words a, [[maybe_unused]] Words b, Floats sum) {
#ifdef __AVX512BF16__
  typedef float Sixteen __attribute__((vector_size(64)));  // the builtin's types
  typedef __bf16 Pairs __attribute__((vector_size(64)));
  if constexpr (kCpuHasPairs)
    return bits_as<Floats>(
        __builtin_ia32_dpbf16ps_512(bits_as<Sixteen>(sum), bits_as<Pairs>(a), bits_as<Pairs>(b)));
#endif
  return sum;
}

}  // namespace attune
