// SPDX-License-Identifier: Apache-2.0
// The functions that generated score programs (generated/score_program.h) call on a GPU: loads of
// captures and functions of floats. Functions of floats treat denormal operands and results as 0.
// Relative errors:
//
// | function     | MUFU instructions | error                                              |
// |--------------|-------------------|----------------------------------------------------|
// | exp2         | 1                 | 2^-22                                              |
// | exp, sigmoid | 1; 2              | 2^-22 + |x| 2^-23                                  |
// | log2, log    | 1                 | 2^-22; for x in 0.5 .. 2 an absolute error         |
// | tanh         | 1                 | 8e-7: a quotient of polynomials (tanh_ratio)       |
// | sqrt, rsqrt  | 1                 | 2^-22                                              |
// | a / b        | 1                 | 2^-22                                              |
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/special_functions.cuh"
#include "shared/score_args.h"

#define ATTUNE_SCORE_FUNCTION __device__ __forceinline__

#include "shared/score_operations.h"

namespace attune {

constexpr float kScoreLog2E = 1.4426950408889634f;
constexpr float kScoreLn2 = 0.6931471805599453f;

ATTUNE_SCORE_FUNCTION float score_infinity() { return __int_as_float(0x7f800000); }
ATTUNE_SCORE_FUNCTION int score_int(float a) { return __float2int_rz(a); }  // saturates; NaN is 0

ATTUNE_SCORE_FUNCTION float score_abs(float a) { return fabsf(a); }
ATTUNE_SCORE_FUNCTION float score_min(float a, float b) { return fminf(a, b); }
ATTUNE_SCORE_FUNCTION float score_max(float a, float b) { return fmaxf(a, b); }
ATTUNE_SCORE_FUNCTION float score_clamp(float a, float low, float high) {
  return fminf(fmaxf(a, low), high);
}
ATTUNE_SCORE_FUNCTION float score_floor(float a) { return floorf(a); }
ATTUNE_SCORE_FUNCTION float score_sqrt(float a) { return sqrt_approx(a); }
ATTUNE_SCORE_FUNCTION float score_rsqrt(float a) { return rsqrt_approx(a); }

ATTUNE_SCORE_FUNCTION float score_exp2(float a) { return exp2_approx(a); }
ATTUNE_SCORE_FUNCTION float score_exp(float a) { return exp2_approx(a * kScoreLog2E); }
ATTUNE_SCORE_FUNCTION float score_log2(float a) { return log2_approx(a); }
ATTUNE_SCORE_FUNCTION float score_log(float a) { return log2_approx(a) * kScoreLn2; }
ATTUNE_SCORE_FUNCTION float score_sigmoid(float a) {
  return reciprocal_approx(1.0f + exp2_approx(-kScoreLog2E * a));
}
ATTUNE_SCORE_FUNCTION float score_tanh(float a) {
  const TanhRatio ratio = tanh_ratio(a);
  const float inside = ratio.numerator * reciprocal_approx(ratio.denominator);
  return fabsf(a) > kTanhLimit ? copysignf(1.0f, a) : inside;  // NaN stays NaN
}

// Returns the element `at` elements after an address.
template <CaptureType kType>
ATTUNE_SCORE_FUNCTION auto load_element(const void* data, long long at) {
  if constexpr (kType == CaptureType::kFp32) {
    return __ldg(static_cast<const float*>(data) + at);
  } else if constexpr (kType == CaptureType::kBf16) {
    return bf16_to_float(__ldg(static_cast<const unsigned short*>(data) + at));
  } else if constexpr (kType == CaptureType::kFp16) {
    return fp16_to_float(__ldg(static_cast<const unsigned short*>(data) + at));
  } else if constexpr (kType == CaptureType::kInt32) {
    return __ldg(static_cast<const int*>(data) + at);
  } else if constexpr (kType == CaptureType::kInt64) {
    return __ldg(static_cast<const int*>(data) + 2 * at);  // the low half
  } else if constexpr (kType == CaptureType::kUint8) {
    return static_cast<int>(__ldg(static_cast<const unsigned char*>(data) + at));
  } else {
    return __ldg(static_cast<const unsigned char*>(data) + at) != 0;
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
