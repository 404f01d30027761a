// SPDX-License-Identifier: Apache-2.0
// The kernel that makes dK and dV of backward_sm90, or one of them.
#pragma once

#include "cuda/backward_sm90/none/maps.cuh"
#include "cuda/backward_sm90/two_kernels/keys_roles.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kKeysThreads, 1)
    attune_keys(const __grid_constant__ AttentionArgs args,
                const __grid_constant__ DropoutArgs dropout,  // where kDropout
                const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                const __grid_constant__ TensorMap map_v,   // where kKeysMakeK == true
                const __grid_constant__ TensorMap map_dk,  // where kKeysMakeK == true
                const __grid_constant__ TensorMap map_dv,  // where kKeysMakeV == true
                const __grid_constant__ TensorMap map_dout) {
  run_keys<kKeysMakeK, kKeysMakeV>(
      args, KeysDropout(dropout),
      {&map_q, &map_k, address_of(map_v), &map_dout, address_of(map_dk), address_of(map_dv)});
}

}  // namespace attune
