// SPDX-License-Identifier: Apache-2.0
// Computes the scale factor of a row in append_kv. Each lane of the row has eight columns per step.
#pragma once

#include "cuda/ptx/shared_memory.cuh"
#include "shared/key_factors.h"

namespace attune {

// Computes the factor from the row's largest magnitude, which the row's lanes find together. If the
// row has a NaN, the largest magnitude is NaN. Stores the factor at `factor.made`; does nothing if
// that is null.
template <Dtype kCode, int kHeadDim, int kNumSteps, class Factor>
__device__ __forceinline__ void make_factor(const float (&values)[kNumSteps][8],
                                            unsigned lanes_of_row, bool is_there, Factor& factor) {
  if (factor.made == nullptr) return;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  unsigned largest = 0;
#pragma unroll
  for (int step = 0; step < kNumSteps; ++step) {
    if (!is_there || (step * kLanes + lane) * 8 >= kHeadDim) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      largest = max(largest, __float_as_uint(values[step][i]) & 0x7fffffffu);
  }
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2)
    largest = max(largest, __shfl_xor_sync(lanes_of_row, largest, lanes));
  factor.value = factor_of_largest<kCode>(__uint_as_float(largest));
  if (is_there && lane == 0) *factor.made = factor.value;
}

}  // namespace attune
