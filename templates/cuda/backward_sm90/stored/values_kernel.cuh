// SPDX-License-Identifier: Apache-2.0
// The kernel of backward_sm90_stored that makes dV from P in the workspace.
#pragma once

#include "cuda/backward_sm90/stored/products.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kKeysThreads, 1)
    attune_values(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ RoundArgs round,
                  const __grid_constant__ DropoutArgs dropout,  // where kDropout
                  const __grid_constant__ TensorMap map_dout,
                  const __grid_constant__ TensorMap map_dv) {
  run_stored<Stored::kP>(args, HeadsOfRound(round), KeysDropout(dropout), map_dout, map_dv);
}

}  // namespace attune
