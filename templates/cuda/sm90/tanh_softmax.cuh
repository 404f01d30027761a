// SPDX-License-Identifier: Apache-2.0
// The softmax of a score program that is only a tanh (softcap), for the score stage of the sm_90
// kernels. It computes exp2 of the tanh polynomial directly: the polynomial's last multiplication
// is the FMA that makes the exponent. An element takes three instructions instead of five, and no
// element is checked beforehand:
//
// | row_max | how the softmax knows that no score lies above the near range                       |
// |---------|-------------------------------------------------------------------------------------|
// | 0       | by the largest score of each row, which it finds in any case                        |
// | 1       | by the sums: one score at the end of the range would raise a sum past its limit     |
// |         | (tanh_overflows), and the polynomial keeps rising past the end. Rows whose maximum  |
// |         | is near the end do not use this softmax                                             |
//
// Scores below the near range do not count if the row has far larger scores. The row maximum shows
// whether it has.
#pragma once

#include "cuda/parts/score_functions.cuh"
#include "cuda/sm90/lazy_softmax.cuh"
#include "cuda/sm90/tile_rows.cuh"
#include "generated/score_program.h"
#include "shared/score_steps.h"

namespace attune {

// A score this far below its row's largest does not count, in log2: a million keys of such scores
// have weights that sum to 2^-10 of the largest weight.
constexpr float kFarBelow = 30.f;

// Returns the head of one of a thread's two rows.
__device__ __forceinline__ const ScoreHead& head_of_row(const ScoreHead (&on_head)[2], int half) {
  return on_head[kNextHead == 0 ? 0 : half];
}

// Limits for a step's scores. They are computed before the scores are ready, so no instruction
// waits for them.
struct TanhLimits {
  bool allow;    // one value per warp with row_max 1, else per thread
  float row[2];  // row_max 0: limit of the largest score, in log2; 1: of a thread's sum in the step
};

__device__ __forceinline__ TanhLimits tanh_limits(const ScoreHead (&on_head)[2],
                                                  const RowStats& rows, float scale_log2) {
  constexpr float kSumsRoom = 8.f;  // log2: a thread's scores of a step, plus a margin
  TanhLimits limits = {true, {}};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const OddTanh tanh = score_only_tanh(head_of_row(on_head, half));
    const float low = tanh.low * scale_log2, max = rows.max[half];
    limits.allow &= is_usable(tanh) && max > low + kFarBelow;
    if constexpr (kRowMax == 1) {
      limits.allow &= max < -low - kSumsRoom;
      limits.row[half] = fminf(exp2_approx(-low - max), kLargestSum / 2);
    } else {
      limits.row[half] = fminf(-low, max + kRescaleThreshold);
    }
  }
  if constexpr (kRowMax == 1) limits.allow = __all_sync(~0u, limits.allow);
  return limits;
}

template <int kCount>
__device__ __forceinline__ bool tanh_may_wait(const ScoreHead (&on_head)[2],
                                              const TanhLimits& limits, const float (&s)[kCount],
                                              float scale_log2) {
  if constexpr (kRowMax == 1) return limits.allow;
  const RowTops tops = row_tops(s);
  bool near = limits.allow;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const OddTanh tanh = score_only_tanh(head_of_row(on_head, half));
    near &= odd_tanh(__int_as_float(tops.row[half]), tanh) * scale_log2 < limits.row[half];
  }
  return __all_sync(~0u, near);
}

// Computes s = exp2(tanh - max) and adds s to the sums.
template <int kCount>
__device__ __forceinline__ void exponentiate_tanh(const ScoreHead (&on_head)[2], float (&s)[kCount],
                                                  const float (&max)[2], float scale_log2,
                                                  float (&sum)[2]) {
  float c1[2], c3[2], c5[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const OddTanh tanh = score_only_tanh(head_of_row(on_head, half));
    c1[half] = tanh.c1 * scale_log2;
    c3[half] = tanh.c3 * scale_log2;
    c5[half] = tanh.c5 * scale_log2;
  }
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int half = j / 2;
      const float z = s[i + j] * s[i + j];
      const float slope = fmaf(fmaf(c5[half], z, c3[half]), z, c1[half]);
      s[i + j] = exp2_approx(fmaf(s[i + j], slope, -max[half]));
    }
    sum[0] += s[i] + s[i + 1];  // pairs first halves the chain of additions
    sum[1] += s[i + 2] + s[i + 3];
  }
}

// True if any row of the warp has a score above the near range, came near overflow, or is NaN.
__device__ __forceinline__ bool tanh_overflows(const TanhLimits& limits, const float (&sum)[2]) {
  return __any_sync(~0u, !(sum[0] < limits.row[0] && sum[1] < limits.row[1]));
}

}  // namespace attune
