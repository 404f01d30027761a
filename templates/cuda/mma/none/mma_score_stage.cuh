// SPDX-License-Identifier: Apache-2.0
// Prefill kernels without a score program: scores stay as they are.
#pragma once

namespace none {

struct ScoreStage {
  template <class Parts, class Tile>
  __device__ __forceinline__ ScoreStage(const Parts&, const Tile&) {}

  template <class Factors, class Step, class Scores>
  __device__ __forceinline__ void apply(const Factors&, const Step&, int, Scores&) const {}
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
