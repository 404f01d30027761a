// SPDX-License-Identifier: Apache-2.0
// Holds rows of one head in the registers of a thread block, for the quantise kernels. Says where
// each element is, loads rows and rotates them.
//
// kLanes neighbouring threads share a row. For each chunk c, thread l of the row has the 8 elements
// from 8 * (c * kLanes + l) on, so that every load and store of a row is contiguous. With a
// transposed output a thread has groups of four consecutive rows: four codes of a column make one
// word.
#pragma once

#include "cuda/ptx/eight_elements.cuh"
#include "shared/attention_args.h"

namespace attune {

constexpr int kLanes = kHeadDimQk / kVector;
constexpr int kChunks = kVector / 8;
constexpr int kGroup = kVLayout == VLayout::kTransposed ? 4 : 1;  // consecutive rows of a thread
constexpr int kSteps = (kRows / kGroup * kLanes + kThreads - 1) / kThreads * kGroup;

static_assert(kHeadDimQk % kVector == 0, "a row is a whole number of threads' vectors");
static_assert(kRows % kGroup == 0, "rows come in whole groups");
static_assert(kRotation == Rotation::kNone || (32 % kLanes == 0 && kThreads % 32 == 0),
              "the threads of a rotated row stand in one warp");

struct RowValues {
  float at[kSteps][kVector];
};

__device__ __forceinline__ unsigned slot_of(int step) {
  return static_cast<unsigned>(step / kGroup * kThreads) + threadIdx.x;
}
// Returns the row of the tile. In the last step it may be kRows or more.
__device__ __forceinline__ int row_of(int step) {
  return static_cast<int>(slot_of(step) / kLanes * kGroup) + step % kGroup;
}
__device__ __forceinline__ int column_of(int step, int chunk) {
  return static_cast<int>(chunk * kLanes + slot_of(step) % kLanes) * 8;
}

// Loads rows [0, rows) of the tile whose first element is `first`, 1 <= rows <= kRows. Slots past
// them load the last row again, which does not change the largest magnitude. This avoids a branch,
// so all loads are in flight at once.
__device__ __forceinline__ void load_rows(const OperandView& view, long long first, int rows,
                                          RowValues& values) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int row = row_of(step) < rows ? row_of(step) : rows - 1;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      load_eight<kDtypeQ>(view.data, first + row * view.row_stride + column_of(step, c),
                          values.at[step] + c * 8);
  }
}

__device__ constexpr float reciprocal_square_root(int power_of_two) {
  double root = 1.0;
  for (int left = power_of_two; left > 1; left /= 2) root *= 0.70710678118654752440;
  return static_cast<float>(root);
}

// Multiplies each row by the orthonormal Hadamard matrix: one butterfly per bit of an element's
// index, first the bits within a thread, then the bits across the lanes of the row. It works in
// fp32 registers, without memory.
__device__ __forceinline__ void rotate_rows(RowValues& values) {
  if constexpr (kRotation == Rotation::kHadamard) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      float* v = values.at[step];
#pragma unroll
      for (int bit = 1; bit < kVector; bit *= 2)
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          if (i & bit) continue;
          const float low = v[i], high = v[i | bit];
          v[i] = low + high;
          v[i | bit] = low - high;
        }
#pragma unroll
      for (int bit = 1; bit < kLanes; bit *= 2) {
        const float sign = threadIdx.x & bit ? -1.0f : 1.0f;
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          v[i] = fmaf(sign, v[i], __shfl_xor_sync(0xFFFFFFFFu, v[i], bit));
      }
      constexpr float kScale = reciprocal_square_root(kHeadDimQk);
#pragma unroll
      for (int i = 0; i < kVector; ++i) v[i] *= kScale;
    }
  }
}

}  // namespace attune
