// SPDX-License-Identifier: Apache-2.0
// The kernel that makes dK and dV of backward_sm90, or one of them.
#pragma once

#include "cuda/backward_sm90/backward_keys_kernel.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kKeysThreads, 1)
#if 1                                                         // where kDropout
    attune_keys(const __grid_constant__ AttentionArgs args,   // where kDropout
                const __grid_constant__ DropoutArgs dropout,  // where kDropout
                const __grid_constant__ TensorMap map_q,      // where kDropout
#else                                                         // where kDropout
    attune_keys(const __grid_constant__ AttentionArgs args, const __grid_constant__ TensorMap map_q,
#endif                                                        // where kDropout
                const __grid_constant__ TensorMap map_k,
                const __grid_constant__ TensorMap map_v,   // where kKeysMakeK == true
                const __grid_constant__ TensorMap map_dk,  // where kKeysMakeK == true
                const __grid_constant__ TensorMap map_dv,  // where kKeysMakeV == true
                const __grid_constant__ TensorMap map_dout) {
  KeysMaps maps{&map_q, &map_k, nullptr, &map_dout, nullptr, nullptr};
  maps.dropout = &dropout;  // where kDropout
  maps.v = &map_v;          // where kKeysMakeK == true
  maps.dk = &map_dk;        // where kKeysMakeK == true
  maps.dv = &map_dv;        // where kKeysMakeV == true
  run_keys<kKeysMakeK, kKeysMakeV>(args, maps);
}

}  // namespace attune
