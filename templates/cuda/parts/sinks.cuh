// SPDX-License-Identifier: Apache-2.0
// Adds the sink of a head: a logit in the softmax denominator, besides the scores of the keys. It
// is added once, when a row is complete over all splits, so no loop over keys handles it.
#pragma once

#include "cuda/parts/none/features.cuh"
#include "cuda/parts/score_functions.cuh"
#include "cuda/ptx/special_functions.cuh"
#include "shared/score_args.h"

namespace attune {

// Returns the sink of a head. `head` is the head's index within the call.
__device__ __forceinline__ float sink_of(const ScoreArgs& scores, int head) {
  return load_capture<static_cast<CaptureType>(kSinksType)>(scores.captures[kSinks],
                                                            scores.head0 + head);
}

// Adds the sink to a row. `inverse` is the factor of the row of O, `lse` is its natural
// log-sum-exp. They are 0 and -inf for a row that saw nothing.
__device__ __forceinline__ void join_sink(const ScoreArgs& scores, int head, float& inverse,
                                          float& lse) {
  const float sink = sink_of(scores, head);
  if (sink == -score_infinity()) return;
  const float above = sink - lse;                               // +inf if the row saw nothing
  const float less = exp2_approx(-kScoreLog2E * fabsf(above));  // smaller weight / larger weight
  inverse *= (above > 0.f ? less : 1.f) / (1.f + less);
  lse = fmaxf(lse, sink) + kScoreLn2 * log2_approx(1.f + less);
}

}  // namespace attune
