// SPDX-License-Identifier: Apache-2.0
// Computes the derivative of the score program at one element, for the mma.sync gradient kernels.
#pragma once

#include "cuda/mma/mma_gradient_elements.cuh"
#include "generated/slope_program.h"

namespace attune {

template <bool kKeysStay>
__device__ __forceinline__ float element_slope(const ScoreArgs& args,
                                               const ElementNames<kKeysStay>& name, float score,
                                               int q_idx, int kv_idx) {
  const int batch = name.batch, head = name.head, kv_head = name.kv_head;
  const SlopeHead on_head = slope_head(args, batch, head, kv_head);
  return slope_element(args, on_head, slope_row(args, on_head, batch, head, kv_head, q_idx),
                       slope_column(args, on_head, batch, head, kv_head, kv_idx), score, batch,
                       head, kv_head, q_idx, kv_idx);
}

}  // namespace attune
