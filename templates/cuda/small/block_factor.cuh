// SPDX-License-Identifier: Apache-2.0
// Computes the factor of a block of rows: the largest finite magnitude divided by the largest code.
// NaN and infinity are ignored, so that they do not spoil other elements; store_codes.cuh makes
// their codes. Magnitudes under 2^-126 count as zeros, because the arithmetic flushes them. A block
// of zeros has factor 1.
#pragma once

#include "cuda/small/row_values.cuh"
#include "shared/layouts/quantise_layout.h"

namespace attune {

__device__ __forceinline__ float largest_magnitude(const RowValues& values) {
  float largest = 0.0f;
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float magnitude = fabsf(values.at[step][i]);
      largest = fmaxf(largest, magnitude <= 3.402823466e+38f ? magnitude : 0.0f);
    }
  return largest;
}

// Returns the largest value over all threads, in all threads. `shared` has one word per warp.
__device__ __forceinline__ float largest_of_block(float value, float* shared) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  if constexpr (kThreads > 32) {
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < kThreads / 32; ++warp) value = fmaxf(value, shared[warp]);
  }
  return value;
}

constexpr float kLargestCode = largest_code_value(kDtypeO);

__device__ __forceinline__ float factor_of(float largest) {
  if (largest == 0.0f) return 1.0f;
  return fmaxf(__fdiv_rn(largest, kLargestCode), kSmallestFactor);
}

}  // namespace attune
