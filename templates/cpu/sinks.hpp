// SPDX-License-Identifier: Apache-2.0
// The sink of a head: a logit that stands in the denominator beside those of the keys. It joins
// when a row is complete, so no loop knows of it.
#pragma once

#include "cpu/score_functions.hpp"
#include "shared/kernel_arguments.h"

namespace attune {

// The logit of a head of q.
inline float sink_of(const ScoreArgs& scores, int head) {
  constexpr CaptureType kType = static_cast<CaptureType>(kSinksType);
  return load_capture<kType>(scores.captures[kSinks], scores.head0 + head);
}

// A row's largest score and sum, in powers of e, with its sink. Returns what its output is
// multiplied by.
inline float join_sink(float sink, float& largest, float& sum) {
  if (sink == -__builtin_inff()) return 1;
  const float raised = largest > sink ? largest : sink;
  const float share = sum > 0 ? __builtin_expf(largest - raised) : 0;
  sum = sum * share + __builtin_expf(sink - raised);
  largest = raised;
  return share;
}

}  // namespace attune
