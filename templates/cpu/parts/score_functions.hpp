// SPDX-License-Identifier: Apache-2.0
// Functions that generated score programs (generated/score_program.h) call on a CPU: loads of
// captures and functions of floats. Each handles one element without branches or library calls, so
// that clang vectorises a loop over elements. exp2 and exp give 0 for results below 2^-126 and
// infinity above 2^127.5; log2 and log treat denormals as 0. Relative errors: tanh 6e-7, the others
// 3e-7.
#pragma once

#include "shared/score_args.h"

#define ATTUNE_SCORE_FUNCTION __attribute__((always_inline)) static inline

#include "shared/score_operations.h"

namespace attune {

ATTUNE_SCORE_FUNCTION float score_infinity() { return __builtin_inff(); }

// Converts to int. Saturates; NaN becomes 0.
ATTUNE_SCORE_FUNCTION int score_int(float a) {
  const float inside = a < 2147483648.0f ? (a > -2147483648.0f ? a : -2147483648.0f) : 0.0f;
  return a >= 2147483648.0f ? 2147483647 : static_cast<int>(inside);
}

ATTUNE_SCORE_FUNCTION float score_abs(float a) { return __builtin_fabsf(a); }
ATTUNE_SCORE_FUNCTION float score_min(float a, float b) { return b < a ? b : a; }
ATTUNE_SCORE_FUNCTION float score_max(float a, float b) { return a < b ? b : a; }
ATTUNE_SCORE_FUNCTION float score_clamp(float a, float low, float high) {
  return score_min(score_max(a, low), high);
}

// Floats of at least 2^23 are whole numbers.
ATTUNE_SCORE_FUNCTION float score_floor(float a) {
  const bool is_whole = !(__builtin_fabsf(a) < 8388608.0f);
  const float towards_0 = static_cast<float>(static_cast<int>(is_whole ? 0.0f : a));
  const float below = towards_0 > a ? towards_0 - 1.0f : towards_0;
  return is_whole ? a : __builtin_copysignf(below, a);
}

ATTUNE_SCORE_FUNCTION float score_sqrt(float a) { return __builtin_sqrtf(a); }
ATTUNE_SCORE_FUNCTION float score_rsqrt(float a) { return 1.0f / __builtin_sqrtf(a); }

// Returns 2^n * 2^f, where `shifted` is n + kExponentShift, rounded. 2^f for f in [-0.5, 0.5] is a
// polynomial of relative error 1e-7. See exp2_nonpositive in simd.hpp.
constexpr float kExponentShift = 12582912.0f + 127.0f;
ATTUNE_SCORE_FUNCTION float score_power_of_2(float shifted, float f) {
  float p = 1.3264727e-3f;
  p = p * f + 9.6715130e-3f;
  p = p * f + 5.5507336e-2f;
  p = p * f + 2.4022242e-1f;
  p = p * f + 6.9314700e-1f;
  p = p * f + 1.0f;
  return p * __builtin_bit_cast(float, __builtin_bit_cast(unsigned, shifted) << 23);
}

ATTUNE_SCORE_FUNCTION float score_exp2(float a) {
  const float x = a < -126.0f ? -127.0f : a > 128.0f ? 128.0f : a;  // NaN stays NaN
  const float shifted = x + kExponentShift;
  return score_power_of_2(shifted, x - (shifted - kExponentShift));
}

// n is a / ln 2, rounded. The rest a - n ln 2 is computed with ln 2 in two parts.
ATTUNE_SCORE_FUNCTION float score_exp(float a) {
  constexpr float kLog2E = 1.44269504f;
  const float x = a < -87.33654f ? -88.02969f : a > 88.72284f ? 88.72284f : a;
  const float shifted = x * kLog2E + kExponentShift;
  const float n = shifted - kExponentShift;
  const float rest = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  const float power = score_power_of_2(shifted, rest * kLog2E);
  return a < -87.33654f ? 0.0f : power;
}

// Uses the series of atanh on a mantissa in [0.75, 1.5); see log2_positive in simd.hpp.
ATTUNE_SCORE_FUNCTION float score_log2(float a) {
  const unsigned bits = __builtin_bit_cast(unsigned, a);
  const int exponent = static_cast<int>(bits - 0x3f400000u) >> 23;
  const float mantissa = __builtin_bit_cast(float, bits - (static_cast<unsigned>(exponent) << 23));
  const float s = (mantissa - 1.0f) / (mantissa + 1.0f);
  const float z = s * s;
  const float series =
      ((((z * (1.0f / 11) + 1.0f / 9) * z + 1.0f / 7) * z + 1.0f / 5) * z + 1.0f / 3) * z + 1.0f;
  const float normal = static_cast<float>(exponent) + series * s * 2.88539008f;  // 2 / ln 2
  const float small = a < 0.0f ? __builtin_nanf("") : -__builtin_inff();
  return a < 0x1p-126f ? small : a < __builtin_inff() ? normal : a;  // NaN and infinity stay
}
ATTUNE_SCORE_FUNCTION float score_log(float a) { return score_log2(a) * 0.6931471805599453f; }

ATTUNE_SCORE_FUNCTION float score_sigmoid(float a) { return 1.0f / (1.0f + score_exp(-a)); }
ATTUNE_SCORE_FUNCTION float score_tanh(float a) {
  const TanhRatio ratio = tanh_ratio(a);
  const float inside = ratio.numerator / ratio.denominator;
  return __builtin_fabsf(a) > kTanhLimit ? __builtin_copysignf(1.0f, a) : inside;
}

template <class T>
ATTUNE_SCORE_FUNCTION T element_at(const void* data, long long offset) {
  return static_cast<const T*>(data)[offset];
}

// Loads the element at offset `at`, in elements, from an address.
template <CaptureType kType>
ATTUNE_SCORE_FUNCTION auto load_element(const void* data, long long at) {
  if constexpr (kType == CaptureType::kFp32) {
    return element_at<float>(data, at);
  } else if constexpr (kType == CaptureType::kBf16) {
    const unsigned bits = element_at<unsigned short>(data, at);
    return __builtin_bit_cast(float, bits << 16);
  } else if constexpr (kType == CaptureType::kFp16) {
    return static_cast<float>(element_at<_Float16>(data, at));
  } else if constexpr (kType == CaptureType::kInt32) {
    return element_at<int>(data, at);
  } else if constexpr (kType == CaptureType::kInt64) {
    return static_cast<int>(element_at<long long>(data, at));
  } else if constexpr (kType == CaptureType::kUint8) {
    return static_cast<int>(element_at<unsigned char>(data, at));
  } else {
    return element_at<unsigned char>(data, at) != 0;
  }
}

template <CaptureType kType, class... Index>
ATTUNE_SCORE_FUNCTION auto load_capture(const ScoreCapture& capture, Index... indices) {
  return load_element<kType>(capture.data, capture_offset(capture, indices...));
}

template <CaptureType kType>
ATTUNE_SCORE_FUNCTION auto load_in_line(const void* line, const ScoreCapture& capture,
                                        int dimension, int index) {
  const int inside = score_max(score_min(index, capture.extents[dimension] - 1), 0);
  return load_element<kType>(line, inside * capture.strides[dimension]);
}

}  // namespace attune
