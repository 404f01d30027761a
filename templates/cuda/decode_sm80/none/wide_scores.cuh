// SPDX-License-Identifier: Apache-2.0
// Heads whose columns one warp multiplies: wide_scores.cuh without effect.
#pragma once

namespace none {

struct ColumnScores {
  __device__ __forceinline__ explicit ColumnScores(unsigned) {}
  template <class Scores>
  __device__ __forceinline__ void join(Scores&) {}
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
