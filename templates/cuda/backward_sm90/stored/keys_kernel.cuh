// SPDX-License-Identifier: Apache-2.0
// The kernel of backward_sm90_stored that makes dK from dS in the workspace.
#pragma once

#include "cuda/backward_sm90/stored/products.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kKeysThreads, 1)
    attune_keys(const __grid_constant__ AttentionArgs args, const __grid_constant__ RoundArgs round,
                const __grid_constant__ DropoutArgs dropout,  // where kDropout
                const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_dk) {
  run_stored<Stored::kDs>(args, HeadsOfRound(round), KeysDropout(dropout), map_q, map_dk);
}

}  // namespace attune
