// SPDX-License-Identifier: Apache-2.0
// The indices of the elements of a step (batch, head, q_idx, kv_idx), for the score and mask
// programs of the mma.sync gradient kernels.
#pragma once

#include "cuda/mma/mma_gradient_stream.cuh"
#include "cuda/parts/score_functions.cuh"

namespace attune {

// The indices of elements as programs see them: indices within the call plus the offsets in
// ScoreArgs.
template <bool kKeysStay>
struct ElementNames {
  int batch, head, kv_head;

  __device__ __forceinline__ ElementNames(const ScoreArgs& scores,
                                          const ElementPlace<kKeysStay>& at)
      : batch(scores.batch0 + at.batch),
        head(scores.head0 + at.head),
        kv_head(scores.kv_head0 + at.head / kGqaRatio),
        stay_(at.stay),
        column_(at.column) {}
  __device__ __forceinline__ int q_idx(const ScoreArgs& scores, int stay, int column) const {
    return scores.q_position0 + (kKeysStay ? column_ + column : stay_ + stay);
  }
  __device__ __forceinline__ int kv_idx(const ScoreArgs& scores, int stay, int column) const {
    return scores.kv_position0 + (kKeysStay ? stay_ + stay : column_ + column);
  }

 private:
  int stay_, column_;
};

}  // namespace attune
