// SPDX-License-Identifier: Apache-2.0
// Online softmax over the fragments of KeysFirst (score_fragments.cuh): a lane has two of each
// eight rows, and the eight lanes with the same lane % 4 share them.
// cuda/parts/online_softmax.cuh tells why maxima may lag.
#pragma once

#include "cuda/decode_sm80/score_fragments.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/ptx/special_functions.cuh"

namespace attune {

class KeysFirstSoftmax {
 public:
  __device__ __forceinline__ explicit KeysFirstSoftmax(float scale_log2) : scale_(scale_log2) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      maximum_[row] = kLowestMax;
      sum_[row] = 0.0f;
    }
  }

  // Updates the kept maxima with the scores of a tile. If one lags too far, rescales O and the
  // sums. O's fragments have rows as those of scores do. Whole warps call it.
  template <int kScoreTiles, int kOutputTiles>
  __device__ __forceinline__ void raise_row_max(const float (&scores)[kScoreTiles][4],
                                                float (&output)[kOutputTiles][4]) {
    float largest[kRows];
    bool lags = false;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      largest[row] = largest_of(scores, row);
      lags |= largest[row] * scale_ - maximum_[row] > kLag;
    }
    if (!__any_sync(~0u, lags)) return;
    float factor[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2)
        largest[row] = max(largest[row], __shfl_xor_sync(~0u, largest[row], lanes));
      const float raised = max(maximum_[row], largest[row] * scale_);
      factor[row] = exp2_approx(maximum_[row] - raised);
      maximum_[row] = raised;
      sum_[row] *= factor[row];
    }
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) output[n][i] *= factor[KeysFirst::row_of_lane(n, i)];
    }
  }

  // Turns the scores of fragment `n` into weights and adds them to the row sums.
  __device__ __forceinline__ void exponentiate(float (&fragment)[4], int n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = KeysFirst::row_of_lane(n, i);
      fragment[i] = exp2_approx(fragment[i] * scale_ - maximum_[row]);
      sum_[row] += fragment[i];
    }
  }

  __device__ __forceinline__ float maximum(int row) const { return maximum_[row]; }
  // Returns the sum, the same in the lanes that share the row. All lanes of the warp must call it.
  __device__ __forceinline__ float sum(int row) const {
    float sum = sum_[row];
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    return sum;
  }

 private:
  static constexpr int kRows = KeysFirst::kRowsOfLane;
  static constexpr float kLag = 3.0f;

  // Returns the largest of this lane's scores of a row.
  template <int kScoreTiles>
  static __device__ __forceinline__ float largest_of(const float (&scores)[kScoreTiles][4],
                                                     int row) {
    float largest = hidden_score();
#pragma unroll
    for (int n = row / 2; n < kScoreTiles; n += KeysFirst::kRowTiles)
      largest = max(largest, max(scores[n][row % 2], scores[n][2 + row % 2]));
    return largest;
  }

  const float scale_;
  float maximum_[kRows];  // times scale_
  float sum_[kRows];      // this lane's part
};

}  // namespace attune
