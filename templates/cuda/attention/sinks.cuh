// SPDX-License-Identifier: Apache-2.0
// The sink of a head: a logit that stands in the denominator beside those of the keys, once
// whatever the splits. It joins when a row is complete, so no loop knows of it.
#pragma once

#include "cuda/attention/score_functions.cuh"
#include "cuda/ptx/exp2.cuh"
#include "shared/score_args.h"

namespace attune {

// `inverse` is what a row of O is multiplied by, `lse` its natural log-sum-exp: of a row that saw
// nothing 0 and -inf.
__device__ __forceinline__ void join_sink(const ScoreArgs& scores, int head, float& inverse,
                                          float& lse) {
  constexpr CaptureType kType = static_cast<CaptureType>(kSinksType);
  const float sink = load_capture<kType>(scores.captures[kSinks], scores.head0 + head);
  if (sink == -score_infinity()) return;
  const float above = sink - lse;                               // +inf where the row saw nothing
  const float less = exp2_approx(-kScoreLog2E * fabsf(above));  // of the two, over the other
  inverse *= (above > 0.f ? less : 1.f) / (1.f + less);
  lse = fmaxf(lse, sink) + kScoreLn2 * log2_approx(1.f + less);
}

}  // namespace attune
