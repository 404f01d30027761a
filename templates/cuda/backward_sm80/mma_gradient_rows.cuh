// SPDX-License-Identifier: Apache-2.0
// attune_kernel of backward_sm80: makes dQ.
#pragma once

#include "cuda/backward_sm80/mma_gradients.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(GradientSide<false, true>::kLayout.threads,
                                             kBlocksPerSm)
    attune_kernel(                                 // in the order of the argument parts
        const __grid_constant__ ScoreArgs scores,  // where kScoreArgs
        const __grid_constant__ AttentionArgs args,
        const __grid_constant__ DropoutArgs dropout,  // where kDropout
        const __grid_constant__ GradientArgs gradients) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const GradientParts parts{args, gradients, scores, dropout};
  GradientTile<false, true, false>(parts, shared_address(shared_memory)).run();
}

}  // namespace attune
