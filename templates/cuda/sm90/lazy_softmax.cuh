// SPDX-License-Identifier: Apache-2.0
// Online softmax over the accumulators of a warpgroup, with a running row maximum that may lag
// behind the true one. Used by prefill_sm90. Any maximum gives the right quotient O / sum; it only
// has to keep exp2 from overflowing. Both forms are exact:
//
// row_max 0, by test: an integer maximum of the raw score bits is taken before the exponentials. It
// shows whether a row has grown by more than kRescaleThreshold in log2. Only then the true maximum
// is taken and O is rescaled. The test costs half an instruction per element: for floats >= 0
// integer and float order agree, negative floats are negative integers, and the seed +0 hides them.
// If the lagging maximum plus the threshold is below zero, the test always finds growth, so very
// negative rows are exact too.
//
// row_max 1, by sums: nothing is tested before the exponentials. The sums of a step show afterwards
// whether a probability came near overflow. If so, the scores of the step are recomputed, and the
// step is redone under their true maximum. Steps with a mask always take the true maximum.
//
// A thread holds two rows, r and r + 8 of its warp's 16. Accumulator element i belongs to row half
// (i / 2) % 2, and the four lanes of a quad share the rows.
//
// The first visible score of a row is so far above kLowestMax (mask.cuh) that both forms
// take the true maximum.
#pragma once

#include "cuda/parts/mask.cuh"
#include "cuda/ptx/special_functions.cuh"

namespace attune {

struct RowStats {
  float max[2];  // of score * c, c = softmax_scale * log2(e); 8 bits: less kProbabilityLog2
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

// Writes this thread's largest scores of both rows.
template <int kCount>
__device__ __forceinline__ void largest_scores(const float (&s)[kCount], float (&largest)[2]) {
  largest[0] = s[0];
  largest[1] = s[2];
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    largest[0] = fmaxf(largest[0], fmaxf(s[i], s[i + 1]));
    largest[1] = fmaxf(largest[1], fmaxf(s[i + 2], s[i + 3]));
  }
}

// Writes the quad's true maxima of score * c, one per row.
template <int kCount>
__device__ __forceinline__ void true_row_max(const float (&s)[kCount], float scale_log2,
                                             float (&max)[2]) {
  largest_scores(s, max);
  max[0] = quad_max(max[0]) * scale_log2;
  max[1] = quad_max(max[1]) * scale_log2;
}

// This thread's largest scores as raw bits; 0 if none is above zero.
struct RowTops {
  int row[2];
};

template <int kCount>
__device__ __forceinline__ RowTops row_tops(const float (&s)[kCount]) {
  RowTops tops = {{0, 0}};
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    tops.row[0] = __vimax3_s32(tops.row[0], __float_as_int(s[i]), __float_as_int(s[i + 1]));
    tops.row[1] = __vimax3_s32(tops.row[1], __float_as_int(s[i + 2]), __float_as_int(s[i + 3]));
  }
  return tops;
}

// True if any row of the warp exceeds its maximum by more than kRescaleThreshold.
template <int kCount>
__device__ __forceinline__ bool row_max_grew(const float (&s)[kCount], const RowStats& rows,
                                             float scale_log2) {
  const RowTops tops = row_tops(s);
  const float growth0 = fmaf(__int_as_float(tops.row[0]), scale_log2, -rows.max[0]);
  const float growth1 = fmaf(__int_as_float(tops.row[1]), scale_log2, -rows.max[1]);
  return __any_sync(~0u, growth0 > kRescaleThreshold || growth1 > kRescaleThreshold);
}

// Sets s to exp2(s * c - max), and adds the new values to the sums.
template <int kCount>
__device__ __forceinline__ void exponentiate(float (&s)[kCount], const float (&max)[2],
                                             float scale_log2, float (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    s[i] = exp2_approx(fmaf(s[i], scale_log2, -max[0]));
    s[i + 1] = exp2_approx(fmaf(s[i + 1], scale_log2, -max[0]));
    s[i + 2] = exp2_approx(fmaf(s[i + 2], scale_log2, -max[1]));
    s[i + 3] = exp2_approx(fmaf(s[i + 3], scale_log2, -max[1]));
    sum[0] += s[i] + s[i + 1];  // pairs first: half as long a chain of additions
    sum[1] += s[i + 2] + s[i + 3];
  }
}

// Turns the scores of a tile's first step into probabilities under their exact maximum.
template <int kCount>
__device__ __forceinline__ void softmax_first(float (&s)[kCount], RowStats* rows,
                                              float scale_log2) {
  true_row_max(s, scale_log2, rows->max);
  rows->max[0] = fmaxf(rows->max[0], kLowestMax);
  rows->max[1] = fmaxf(rows->max[1], kLowestMax);
  rows->sum[0] = 0.f;
  rows->sum[1] = 0.f;
  exponentiate(s, rows->max, scale_log2, rows->sum);
}

// Raises the maxima where `max` is larger, and multiplies the sums in `rows` by `factor`. O under
// the old maxima must be multiplied by `factor` too.
__device__ __forceinline__ void raise_to(const float (&max)[2], RowStats* rows,
                                         float (&factor)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float raised = fmaxf(max[half], rows->max[half]);
    factor[half] = exp2_approx(rows->max[half] - raised);
    rows->max[half] = raised;
    rows->sum[half] *= factor[half];
  }
}

// Raises the maxima to the true ones.
template <int kCount>
__device__ __forceinline__ void raise_row_max(const float (&s)[kCount], RowStats* rows,
                                              float scale_log2, float (&factor)[2]) {
  float max[2];
  true_row_max(s, scale_log2, max);
  raise_to(max, rows, factor);
}

// The largest sum of one thread's probabilities in one step that row_max 1 lets pass. It is far
// from where a probability overflows.
constexpr float kLargestSum =
    kDtypeQ == Dtype::kFp16 ? 32768.f : 1.8446744073709552e19f;  // 2^15, 2^64

// True if a sum of any row of the warp came near overflow, or is NaN.
__device__ __forceinline__ bool sums_overflow(const float (&sum)[2]) {
  return __any_sync(~0u, !(sum[0] + sum[1] < kLargestSum));
}

}  // namespace attune
