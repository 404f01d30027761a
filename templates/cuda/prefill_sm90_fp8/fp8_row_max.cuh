// SPDX-License-Identifier: Apache-2.0
// Decides when a row's running maximum is raised, with P in e4m3. Used by fp8_consumer.cuh.
//
// e4m3 rounds every probability by the same relative error, but holds powers of two exactly. The
// largest probability of a row is a power of two if the maximum is the true one. That matters only
// if this probability makes up much of its row.
//   accurate  The largest probability starts at 2^6. The maximum is raised for a probability above
//             2^6 that is more than a quarter of this thread's sum (about a 16th of the row), or
//             that would not fit e4m3.
//   fast      The largest probability starts at 2^4. The maximum is raised only for a probability
//             that would not fit e4m3.
//
// The probabilities here include the factors of V's blocks (fp8_step_factors.cuh). They are
// compared with a sum without these factors, which is at least as large. If factors differ much,
// the maximum is therefore raised for the keys that count in O, and O's error stays as small
// relative to O's scale.
#pragma once

#include "shared/attention_enums.h"

#include "cuda/prefill_sm90_fp8/fp8_step_factors.cuh"

namespace attune {

constexpr float kMuchLog2 = -2.f;

// Returns log2 of a number that is not negative, with an error of at most 0.09. Reads its bits: the
// exponent, and the mantissa as the fraction.
__device__ __forceinline__ float rough_log2(float x) {
  const float bits = __uint_as_float(__float_as_uint(x) >> 8 | 0x4b000000u);  // 2^23 + bits / 256
  return fmaf(bits, 1.f / 32768.f, -256.f - 127.f);
}

// Returns log2 of the largest probability that does not yet raise the maximum. `sum` is the
// thread's sum so far.
__device__ __forceinline__ float growth_limit(float sum) {
  if constexpr (kAccuracy == Accuracy::kFast) return kRescaleThreshold;
  return fminf(fmaxf(rough_log2(sum) + kMuchLog2, kProbabilityLog2), kRescaleThreshold);
}

// Sets the maxima to the true ones of a tile's first step, and the sums to 0.
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

// True if the maximum of any row of the warp must be raised.
__device__ __forceinline__ bool must_raise(const float (&level)[2], const RowStats& rows) {
  bool must = false;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    must |= level[half] - rows.max[half] > growth_limit(rows.sum[half]);
  return __any_sync(~0u, must);
}

// Raises the maxima to the true ones. A quad's top level is exact if it is above zero, else only an
// upper bound. If such a bound would raise a maximum, the warp finds the true levels from all
// scores.
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
