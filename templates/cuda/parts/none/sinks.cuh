// SPDX-License-Identifier: Apache-2.0
// Heads without a sink.
#pragma once

namespace none {

template <class Scores>
__device__ __forceinline__ float sink_of(const Scores&, int) {
  return 0.0f;
}

template <class Scores>
__device__ __forceinline__ void join_sink(const Scores&, int, float&, float&) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
