// SPDX-License-Identifier: Apache-2.0
// Online softmax over accumulator fragments in the layout of mma.cuh and wgmma: two rows per
// thread, four threads per row. Scores stay unscaled. A weight is exp2(score * c - maximum) with c
// = softmax_scale * log2(e): one FMA and one exp2.
//
// Rescaling O is rare: the kept maximum may lag behind the true one by up to kLag. Weights are then
// at most 2^kLag, and the quotient O / sum is unchanged. kLag is 3. At lag 0 the largest score has
// weight 1, which rounds to 16 bits without error; a larger weight does not. With more lag this
// error shows (8: mean error up to 1.17 times that of lag 0; 3: at most 1.03). Each thread checks
// for itself, without shuffles, if the lag is exceeded. On sm_90, where it is cheaper, it compares
// the raw bits of the scores as integers, starting from +0. That maximum is right for positive
// scores and otherwise too large, never too small. Only if the lag is exceeded do the threads
// compute and exchange the exact maximum.
//
// A row that has seen nothing has sum 0 (mask.cuh), and ends with O = 0 and LSE = -inf.
//
// kHeadroom: the kept maximum is lower by kHeadroom (log2), so weights reach 2^(kHeadroom + kLag).
// Neither O / sum nor LSE depends on it. 8-bit weights need it because their smallest value is not
// far below 1.
#pragma once

#include "cuda/parts/mask.cuh"
#include "cuda/ptx/special_functions.cuh"

namespace attune {

template <int kRowTiles, int kLag = 3, int kHeadroom = 0>
class OnlineSoftmax {
 public:
  __device__ explicit OnlineSoftmax(const float (&scale_log2)[kRowTiles]) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      scale_[m] = scale_log2[m];
      maximum_[m][0] = maximum_[m][1] = kLowestMax;
      sum_[m][0] = sum_[m][1] = 0.0f;
    }
  }

  // Updates the kept maximum with a block of scores. If it lags too far, rescales O and the sums.
  // Whole warps call it.
  template <int kScoreTiles, int kOutputTiles>
  __device__ __forceinline__ void raise_row_max(const float (&scores)[kRowTiles][kScoreTiles][4],
                                                float (&output)[kRowTiles][kOutputTiles][4]) {
    bool lags = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      lags |= bound(scores[m], 0) * scale_[m] - maximum_[m][0] > kLag + kHeadroom;
      lags |= bound(scores[m], 2) * scale_[m] - maximum_[m][1] > kLag + kHeadroom;
    }
    if (!__any_sync(0xFFFFFFFFu, lags)) return;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float raised =
            max(maximum_[m][half], exact(scores[m], 2 * half) * scale_[m] - kHeadroom);
        const float factor = exp2_approx(maximum_[m][half] - raised);
        maximum_[m][half] = raised;
        sum_[m][half] *= factor;
#pragma unroll
        for (int n = 0; n < kOutputTiles; ++n) {
          output[m][n][2 * half] *= factor;
          output[m][n][2 * half + 1] *= factor;
        }
      }
    }
  }

  // Turns the scores of one fragment into weights and adds them to the row sums.
  __device__ __forceinline__ void exponentiate(float (&fragment)[4], int m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      fragment[i] = exp2_approx(fragment[i] * scale_[m] - maximum_[m][i / 2]);
      sum_[m][i / 2] += fragment[i];
    }
  }

  // Turns scores into weights that include a factor; the row sums leave the factor out.
  __device__ __forceinline__ void exponentiate(float (&fragment)[4], int m, float inverse_factor) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      fragment[i] = exp2_approx(fragment[i] * scale_[m] - maximum_[m][i / 2]);
      sum_[m][i / 2] += fragment[i] * inverse_factor;
    }
  }

  // The result of finish(), which completes the sum of row `half` of tile m over its four threads
  // after the last block.
  struct Row {
    float normalizer;  // 1 / sum, 0 for a row that saw nothing
    float lse;         // natural log
  };
  __device__ __forceinline__ Row finish(int m, int half) const {
    float sum = sum_[m][half];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    constexpr float kLn2 = 0.693147180559945f;
    return {sum == 0.0f ? 0.0f : reciprocal_approx(sum),
            (maximum_[m][half] + log2_approx(sum)) * kLn2};
  }
  // Return the maximum of a row, and this thread's part of its sum.
  __device__ float maximum(int m, int half) const { return maximum_[m][half]; }
  __device__ float sum(int m, int half) const { return sum_[m][half]; }

 private:
  // Returns an upper bound of elements i and i + 1 of all of this thread's fragments.
  template <int kScoreTiles>
  static __device__ __forceinline__ float bound(const float (&scores)[kScoreTiles][4], int i) {
    if constexpr (kArch != 90) return maximum_of(scores, i);
    int bits = 0;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n)
      bits = max(bits, max(__float_as_int(scores[n][i]), __float_as_int(scores[n][i + 1])));
    return __int_as_float(bits);
  }

  // Returns the row's maximum, the same in its four threads.
  template <int kScoreTiles>
  static __device__ __forceinline__ float exact(const float (&scores)[kScoreTiles][4], int i) {
    float maximum = maximum_of(scores, i);
    maximum = max(maximum, __shfl_xor_sync(0xFFFFFFFFu, maximum, 1));
    return max(maximum, __shfl_xor_sync(0xFFFFFFFFu, maximum, 2));
  }

  template <int kScoreTiles>
  static __device__ __forceinline__ float maximum_of(const float (&scores)[kScoreTiles][4], int i) {
    float maximum = hidden_score();
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n)
      maximum = max(maximum, max(scores[n][i], scores[n][i + 1]));
    return maximum;
  }

  float scale_[kRowTiles];
  float maximum_[kRowTiles][2];  // times scale_, minus kHeadroom
  float sum_[kRowTiles][2];      // this thread's part of the row sum
};

}  // namespace attune
