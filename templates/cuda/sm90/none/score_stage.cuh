// SPDX-License-Identifier: Apache-2.0
// The score stage of a kernel whose softmax takes the scaled q.k. Twin of score_stage.cuh.
#pragma once

#include "cuda/sm90/lazy_softmax.cuh"

namespace none {

struct ScoreStage {
  template <class Parts, class PrefillTile>
  __device__ __forceinline__ void begin(const Parts&, const PrefillTile&, int) {}
  __device__ __forceinline__ void prepare(int) {}
  template <class RowStats>
  __device__ __forceinline__ void prepare(int, const RowStats*) {}
  template <int kCount>
  __device__ __forceinline__ float apply(float scale_log2, float (&)[kCount]) {
    return scale_log2;
  }
  template <int kCount>
  __device__ __forceinline__ float apply_again(float scale_log2, int, float (&)[kCount]) const {
    return scale_log2;
  }
  template <class RowStats, int kCount>
  __device__ __forceinline__ void apply_lazily(float (&)[kCount], const RowStats&, bool, bool) {}

  template <class RowStats, int kCount>
  __device__ __forceinline__ bool row_max_grew(const float (&s)[kCount], const RowStats& rows,
                                               float scale_log2) const {
    return attune::row_max_grew(s, rows, scale_log2);
  }
  template <class RowStats, int kCount>
  __device__ __forceinline__ void raise_row_max(const float (&s)[kCount], RowStats* rows,
                                                float scale_log2, float (&factor)[2]) const {
    attune::raise_row_max(s, rows, scale_log2, factor);
  }
  template <int kCount>
  __device__ __forceinline__ void exponentiate(float (&s)[kCount], const float (&max)[2],
                                               float scale_log2, float (&sum)[2]) const {
    attune::exponentiate(s, max, scale_log2, sum);
  }
  __device__ __forceinline__ bool sums_overflow(const float (&sum)[2]) const {
    return attune::sums_overflow(sum);
  }
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
