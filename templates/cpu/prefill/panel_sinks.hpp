// SPDX-License-Identifier: Apache-2.0
// The sinks of a panel's rows in prefill_cpu, whose softmax uses base 2.
#pragma once

#include "cpu/parts/sinks.hpp"
#include "cpu/prefill/online_softmax.hpp"

namespace attune {

// Joins the sinks to the states of the rows from `first` on of the list of one K/V head. Returns
// the factor of their O: 0 for a row that saw no key.
inline Panel join_sinks(const ScoreArgs& scores, int head_kv, long long first,
                        SoftmaxState& state) {
  float sinks[kPanelRows];
  for (int i = 0; i < kPanelRows; ++i)
    sinks[i] = sink_of(scores, head_kv * kGqaRatio + static_cast<int>((first + i) % kGqaRatio));
  Panel sink;
  __builtin_memcpy(&sink, sinks, sizeof(sinks));
  sink *= 1.44269504f;
  const Panel raised = larger(state.largest, sink);
  const Panel base = larger(raised, Panel(-3e38f));  // -inf - (-inf) would be NaN
  const Panel share = state.sum == 0.0f ? Panel(0.0f) : exp2_nonpositive(state.largest - base);
  const Panel added = sink > -3e38f ? exp2_nonpositive(sink - base) : Panel(0.0f);
  state.sum = state.sum * share + added;
  state.largest = raised;
  return share;
}

}  // namespace attune
