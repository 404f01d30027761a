// SPDX-License-Identifier: Apache-2.0
// The sinks of the two rows that a thread of an sm_90 kernel holds.
#pragma once

#include "cuda/attention/epilogue_rows.cuh"
#include "cuda/attention/sinks.cuh"

namespace attune {

// Read ahead of a tile, so that nothing waits for them at its end.
struct RowSinks {
  float logit[2];
};

__device__ __forceinline__ RowSinks load_sinks(const ScoreArgs& scores, ThreadRows place) {
  return {{load_sink(scores, place.head), load_sink(scores, place.head + kNextHead)}};
}

__device__ __forceinline__ void join_sinks(const RowSinks& sinks, RowEnds* ends) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
    join_sink(sinks.logit[half], ends->inverse[half], ends->lse[half]);
}

}  // namespace attune
