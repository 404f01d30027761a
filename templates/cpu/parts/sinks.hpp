// SPDX-License-Identifier: Apache-2.0
// The sink of a head: a logit that is added to the denominator along with the keys' logits. It is
// added when a row is complete, so no loop over keys handles it.
#pragma once

#include "cpu/parts/none/features.hpp"
#include "cpu/parts/score_functions.hpp"
#include "shared/kernel_arguments.h"

namespace attune {

// Returns the sink's logit for a head of q.
inline float sink_of(const ScoreArgs& scores, int head) {
  constexpr CaptureType kType = static_cast<CaptureType>(kSinksType);
  return load_capture<kType>(scores.captures[kSinks], scores.head0 + head);
}

// Adds the sink to a row's largest score and sum, in base e. Returns the factor of the row's
// output.
inline float join_sink(float sink, float& largest, float& sum) {
  if (sink == -__builtin_inff()) return 1;
  const float raised = largest > sink ? largest : sink;
  const float share = sum > 0 ? __builtin_expf(largest - raised) : 0;
  sum = sum * share + __builtin_expf(sink - raised);
  largest = raised;
  return share;
}

}  // namespace attune
