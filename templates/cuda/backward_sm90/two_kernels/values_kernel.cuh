// SPDX-License-Identifier: Apache-2.0
// A separate kernel makes dV of backward_sm90 if the accumulators of dK leave no registers for dV.
#pragma once

#include "cuda/backward_sm90/two_kernels/keys_roles.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kKeysThreads, 1)
    attune_values(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ DropoutArgs dropout,  // where kDropout
                  const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                  const __grid_constant__ TensorMap map_dv,
                  const __grid_constant__ TensorMap map_dout) {
  run_keys<false, true>(args, KeysDropout(dropout),
                        {&map_q, &map_k, nullptr, &map_dout, nullptr, &map_dv});
}

}  // namespace attune
