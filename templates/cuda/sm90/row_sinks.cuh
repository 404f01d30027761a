// SPDX-License-Identifier: Apache-2.0
// Adds the sinks, if there are any, to the two rows that a thread of an sm_90 kernel holds.
#pragma once

#include "cuda/parts/sinks.cuh"  // where kSinks, else none/
#include "cuda/sm90/epilogue_rows.cuh"

namespace attune {

__device__ __forceinline__ void join_sinks(const ScoreArgs& scores, ThreadRows place,
                                           RowEnds* ends) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
    join_sink(scores, place.head + kNextHead * half, ends->inverse[half], ends->lse[half]);
}

}  // namespace attune
