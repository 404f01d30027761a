// SPDX-License-Identifier: Apache-2.0
// Online softmax over the accumulators of a warpgroup, with a lazy and exact row maximum. Used by prefill_sm90.
//
// A thread holds two rows, r and r + 8 of its warp's 16; accumulator element i belongs to row half (i / 2) % 2, and the four
// lanes of a quad share the rows. The running maximum may lag behind the true one by `headroom` = kRescaleThreshold / c, with
// c = softmax_scale * log2(e): probabilities then reach 2^kRescaleThreshold instead of 1, which fp32 sums and bf16 or fp16
// probabilities hold without loss, and rescaling O becomes rare.
//
// The test for growth is an integer maximum of the raw score bits, half an instruction per element: for floats >= 0 integer
// and float order agree, negative floats are negative integers, and the seed +0 hides them. If the lagging maximum plus
// headroom is below zero the test always passes and the exact branch runs: very negative rows are exact too.
//
// Masked scores are -2^100, a finite power of two: a row that is fully masked in its first step gets exp2(0) = 1 there, and
// the first visible score wipes that out with a factor exp2(-huge) = 0. With a power of two both s * c and m * c are exact,
// so their difference is exactly 0; -1e30 would leave a rounding error of 1e22 in the exponent.
#pragma once

#include "cuda/ptx/exp2.cuh"

namespace attune {

constexpr float kMaskedScore = -1.2676506002282294e30f;  // -2^100

struct RowStats {
  float max[2];  // of the scores, unscaled
  float sum[2];  // of this thread's own columns
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Maximum of the thread's elements of each row, not below `floor`.
template <int kCount>
__device__ __forceinline__ void thread_row_max(const float (&s)[kCount], const float (&floor)[2], float (&max)[2]) {
  max[0] = floor[0];
  max[1] = floor[1];
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    max[0] = fmaxf(max[0], fmaxf(s[i], s[i + 1]));
    max[1] = fmaxf(max[1], fmaxf(s[i + 2], s[i + 3]));
  }
}

// Whether any score of the warp's rows exceeds its lagging maximum by more than `headroom`.
template <int kCount>
__device__ __forceinline__ bool row_max_grew(const float (&s)[kCount], const RowStats& rows, float headroom) {
  int top0 = 0;
  int top1 = 0;
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    top0 = __vimax3_s32(top0, __float_as_int(s[i]), __float_as_int(s[i + 1]));
    top1 = __vimax3_s32(top1, __float_as_int(s[i + 2]), __float_as_int(s[i + 3]));
  }
  return __any_sync(~0u, __int_as_float(top0) > rows.max[0] + headroom || __int_as_float(top1) > rows.max[1] + headroom);
}

// s = exp2(s * c - max * c), and the sums grow by it.
template <int kCount>
__device__ __forceinline__ void exponentiate(float (&s)[kCount], RowStats* rows, float scale_log2) {
  const float shift0 = rows->max[0] * scale_log2;
  const float shift1 = rows->max[1] * scale_log2;
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    s[i] = exp2_approx(fmaf(s[i], scale_log2, -shift0));
    s[i + 1] = exp2_approx(fmaf(s[i + 1], scale_log2, -shift0));
    s[i + 2] = exp2_approx(fmaf(s[i + 2], scale_log2, -shift1));
    s[i + 3] = exp2_approx(fmaf(s[i + 3], scale_log2, -shift1));
    rows->sum[0] += s[i];
    rows->sum[0] += s[i + 1];
    rows->sum[1] += s[i + 2];
    rows->sum[1] += s[i + 3];
  }
}

// First step of a tile: scores to probabilities under their exact maximum.
template <int kCount>
__device__ __forceinline__ void softmax_first(float (&s)[kCount], RowStats* rows, float scale_log2) {
  thread_row_max(s, {s[0], s[2]}, rows->max);
  rows->max[0] = quad_max(rows->max[0]);
  rows->max[1] = quad_max(rows->max[1]);
  rows->sum[0] = 0.f;
  rows->sum[1] = 0.f;
  exponentiate(s, rows, scale_log2);
}

// Later steps. Returns whether O must be multiplied by `factor`, the same answer in all lanes of the warp.
template <int kCount>
__device__ __forceinline__ bool softmax_next(float (&s)[kCount], RowStats* rows, float scale_log2, float headroom, float (&factor)[2]) {
  const bool grew = row_max_grew(s, *rows, headroom);
  if (grew) {
    float max[2];
    thread_row_max(s, rows->max, max);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      max[half] = quad_max(max[half]);
      factor[half] = exp2_approx((rows->max[half] - max[half]) * scale_log2);
      rows->max[half] = max[half];
      rows->sum[half] *= factor[half];
    }
  }
  exponentiate(s, rows, scale_log2);
  return grew;
}

}  // namespace attune
