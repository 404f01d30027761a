// SPDX-License-Identifier: Apache-2.0
// Exponentials of scores by an odd polynomial of them, for the softmax of a tanh (tanh_softmax.cuh). Scores that are what they are to be
// go through the same ones, by the polynomial that is a straight line: so the loop over steps holds them once, in the basic block in which
// P V is waited for and probabilities are rounded. Behind a branch of their own those would come after all of them.
#pragma once

#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/max_nan.cuh"

namespace attune {

// What the exponent makes of a score of each of a thread's two rows, in log2: s (c1 + c3 s^2 + c5 s^4).
struct TanhCurve {
  float c1[2], c3[2], c5[2];
};

// The curve of scores that are what they are to be. Nothing on it may have an infinite square, whose product with 0 is NaN: hidden scores
// are laid so low that they count for nothing, under a maximum of a row that has seen nothing yet as well. No other score is that low: each
// is a multiple of a tanh. NaN stays NaN.
constexpr TanhCurve kStraight = {{1.f, 1.f}, {0.f, 0.f}, {0.f, 0.f}};
constexpr float kHiddenOnCurve = -1e18f;
constexpr float kLowestMaxOnCurve = kHiddenOnCurve / 10;

// Scores, which are to be multiplied by `scale_log2`, and maxima as exponentiate_on takes them with kStraight.
template <int kCount>
__device__ __forceinline__ void lay_straight(float (&s)[kCount], float scale_log2,
                                             float (&max)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = max_nan(s[i] * scale_log2, kHiddenOnCurve);
#pragma unroll
  for (int half = 0; half < 2; ++half) max[half] = max_nan(max[half], kLowestMaxOnCurve);
}

// s = exp2(curve of s - max), and the sums grow by it.
template <int kCount>
__device__ __forceinline__ void exponentiate_on(const TanhCurve& curve, float (&s)[kCount],
                                                const float (&max)[2], float (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int half = j / 2;
      const float z = s[i + j] * s[i + j];
      const float slope = fmaf(fmaf(curve.c5[half], z, curve.c3[half]), z, curve.c1[half]);
      s[i + j] = exp2_approx(fmaf(s[i + j], slope, -max[half]));
    }
    sum[0] += s[i] + s[i + 1];  // pairs first: half as long a chain of additions
    sum[1] += s[i + 2] + s[i + 3];
  }
}

}  // namespace attune
