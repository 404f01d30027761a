// SPDX-License-Identifier: Apache-2.0
// Kernels without a score program: scores stay as they are.
#pragma once

namespace none {

struct ScoreStage {
  template <class Parts, class Tile>
  __device__ __forceinline__ ScoreStage(const Parts&, const Tile&) {}

  template <class Factors, class Step, class Scores>
  __device__ __forceinline__ void apply(const Factors&, const Step&, int, Scores&) const {}
};

template <class Parts, class Place, class Scores>
__device__ __forceinline__ void bend_scores(const Parts&, const Place&, Scores&, Scores&) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
