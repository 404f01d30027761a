// SPDX-License-Identifier: Apache-2.0
// attune_values of backward_sm80: makes dV in a separate kernel, if the accumulators of dK leave no
// registers for dV.
#pragma once

#include "cuda/backward_sm80/mma_gradients.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(GradientSide<true, false>::kLayout.threads,
                                             kKeyBlocksPerSm)
    attune_values(                                 // in the order of the argument parts
        const __grid_constant__ ScoreArgs scores,  // where kScoreArgs
        const __grid_constant__ AttentionArgs args,
        const __grid_constant__ DropoutArgs dropout,  // where kDropout
        const __grid_constant__ GradientArgs gradients) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const GradientParts parts{args, gradients, scores, dropout};
  GradientTile<true, false, true>(parts, shared_address(shared_memory)).run();
}

}  // namespace attune
