// SPDX-License-Identifier: Apache-2.0
// When the running maximum of a row follows a growth, with P in e4m3. Used by fp8_consumer.cuh.
//
// A probability rounds to e4m3 with the same relative error wherever it lies in the range, but not
// at all where it is a power of two, as the largest is when the maximum is the true one. That
// matters where one probability makes up much of its row, and there only.
//   accurate  the largest begins at 2^6; the maximum follows a growth past that by a probability of
//             more than a quarter of what the thread has summed (a 16th of the row, about),
//             and any growth that would not fit e4m3
//   fast      it begins at 2^4; the maximum follows what would not fit
//
// Probabilities are those that meet V, with the factors of its blocks (fp8_step_factors.cuh); the
// sum they are held against is that of the weights without, which is no smaller: where factors
// differ by much the maximum follows what counts among them, and O errs by no more of its scale.
#pragma once

#include "shared/fp8_options.h"

#include "cuda/attention/fp8_step_factors.cuh"

namespace attune {

constexpr float kMuchLog2 = -2.f;

// log2, to 0.09, of a number that is not negative, from its bits: the exponent and the mantissa as
// its fraction.
__device__ __forceinline__ float rough_log2(float x) {
  const float bits = __uint_as_float(__float_as_uint(x) >> 8 | 0x4b000000u);  // 2^23 + bits / 256
  return fmaf(bits, 1.f / 32768.f, -256.f - 127.f);
}

// Returns the largest log2 of a probability that the current maximum allows.
__device__ __forceinline__ float growth_limit(float sum) {
  if constexpr (kAccuracy == Accuracy::kFast) return kRescaleThreshold;
  return fminf(fmaxf(rough_log2(sum) + kMuchLog2, kProbabilityLog2), kRescaleThreshold);
}

// First step of a tile: the exact maximum of its scores.
__device__ __forceinline__ void first_row_max(const StepFactors& factors,
                                              const GroupFactors (&here)[kGroups], float scale_log2,
                                              Scores& s, RowStats* rows) {
  float level[2];
  factors.true_levels(here, scale_log2, s, level);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows->max[half] = fmaxf(level[half] - kProbabilityLog2, kLowestMax);
    rows->sum[half] = 0.f;
  }
}

// True if any row of the warp must take its maximum anew.
__device__ __forceinline__ bool must_raise(const float (&level)[2], const RowStats& rows) {
  bool must = false;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    must |= level[half] - rows.max[half] > growth_limit(rows.sum[half]);
  return __any_sync(~0u, must);
}

// Raises the maxima to the true ones: those of the quad's top levels, where these are above zero. A
// warp with another row that may have grown looks at all its scores.
__device__ __forceinline__ void raise_to_step_max(const StepFactors& factors,
                                                  const GroupFactors (&here)[kGroups],
                                                  float scale_log2, Scores& s, float (&level)[2],
                                                  RowStats* rows, float (&factor)[2]) {
  bool hidden = false;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    level[half] = quad_max(level[half]);
    hidden |= level[half] <= 0.f && level[half] - kProbabilityLog2 > rows->max[half];
  }
  if (__any_sync(~0u, hidden)) factors.true_levels(here, scale_log2, s, level);
  const float max[2] = {level[0] - kProbabilityLog2, level[1] - kProbabilityLog2};
  raise_to(max, rows, factor);
}

}  // namespace attune
