// SPDX-License-Identifier: Apache-2.0
// Caches without a factor per key: decode_factors.cuh without effect.
#pragma once

namespace none {

enum { kFactorArrivals = 0 };

struct FactorsAddress {};

struct KeyFactorRing {
  __device__ __forceinline__ KeyFactorRing(unsigned, int) {}
  __device__ __forceinline__ FactorsAddress slot(int) const { return {}; }
  template <class Scales>
  __device__ __forceinline__ void copy(int, const Scales&, int, int, int, bool, unsigned) const {}
};

struct KeyFactors {
  template <class Scores>
  __device__ __forceinline__ void multiply_scores(FactorsAddress, Scores&) const {}
  template <class Output>
  __device__ __forceinline__ void raise_unit(FactorsAddress, Output&) {}
  __device__ __forceinline__ void multiply_weights(FactorsAddress, int, float (&)[4]) const {}
  __device__ __forceinline__ float output(float relative) const { return relative; }
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
