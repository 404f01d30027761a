// SPDX-License-Identifier: Apache-2.0
// Raises the maximum late, for row_max 1 of prefill_sm90_fp8, so that exponentials directly follow
// their product. A step is exponentiated under the current maximum. Its probabilities, still in
// fp32, then show whether one of them is too large for e4m3. If so, the true maximum is taken, and
// the probabilities are multiplied to fit it. Only if one exceeds 2^100, near the limit of fp32,
// the scores of the step are recomputed and exponentiated again. Used by fp8_consumer.cuh in the
// fast mode. The accurate mode raises the maximum for smaller growths (fp8_row_max.cuh), so often
// that a late raise would cost more than it saves.
#pragma once

#include "cuda/prefill_sm90_fp8/fp8_row_max.cuh"
#include "cuda/ptx/mma_fp8.cuh"

namespace attune {

static_assert(kRowMax == 0 || (kAccuracy == Accuracy::kFast && kFlushKeys == 0),
              "row_max 1 is for the fast mode, which never flushes");

constexpr float kLargestAllowed = 445.72f;                // 2^kRescaleThreshold
constexpr float kLargestScaled = 1.2676506002282294e30f;  // 2^100

// True if a probability of this thread may be too large for e4m3. None is larger than the sum of
// its step.
__device__ __forceinline__ bool may_have_grown(const float (&sum)[2]) {
  return sum[0] > kLargestAllowed || sum[1] > kLargestAllowed;
}

// Returns false if none of the warp's probabilities `p` is too large. Otherwise raises the maximum,
// rescales `p` and `sum` to it, and sets `factor`, by which O of the earlier steps is multiplied.
// `scores_again(s)` computes the scores of the step again and returns their factor.
template <int kCount, class ScoresAgain>
__device__ __forceinline__ bool follow_growth(const StepFactors& factors,
                                              const GroupFactors (&here)[kGroups],
                                              const ScoresAgain& scores_again, float (&p)[kCount],
                                              RowStats* rows, float (&sum)[2], float (&factor)[2]) {
  const RowTops tops = row_tops(p);
  const float top[2] = {__int_as_float(tops.row[0]), __int_as_float(tops.row[1])};
  if (!__any_sync(~0u, top[0] > kLargestAllowed || top[1] > kLargestAllowed)) return false;
  float level[2];
  if (__any_sync(~0u, top[0] > kLargestScaled || top[1] > kLargestScaled)) {
    const float scale_log2 = scores_again(p);
    factors.true_levels(here, scale_log2, p, level);
    const float max[2] = {level[0] - kProbabilityLog2, level[1] - kProbabilityLog2};
    raise_to(max, rows, factor);
    sum[0] = sum[1] = 0.f;
    factors.exponentiate_step(here, scale_log2, p, *rows, sum);
    return true;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    level[half] = rows->max[half] + log2_approx(quad_max(top[half]));
  const float max[2] = {level[0] - kProbabilityLog2, level[1] - kProbabilityLog2};
  raise_to(max, rows, factor);
#pragma unroll
  for (int i = 0; i < kCount; ++i) p[i] *= factor[i / 2 % 2];
  sum[0] *= factor[0];
  sum[1] *= factor[1];
  return true;
}

}  // namespace attune
