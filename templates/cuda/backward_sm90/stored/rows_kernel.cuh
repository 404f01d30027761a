// SPDX-License-Identifier: Apache-2.0
// The kernel of backward_sm90_stored that makes dQ by tiles of rows, and stores dS and P.
#pragma once

#include "cuda/backward_sm90/none/own_sums.cuh"
#include "cuda/backward_sm90/rows.cuh"
#include "cuda/backward_sm90/stored/panels.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kRowsThreads, 1)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ RoundArgs round,
                  const __grid_constant__ DropoutArgs dropout,  // where kDropout
                  const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                  const __grid_constant__ TensorMap map_v,
                  const __grid_constant__ TensorMap map_dout,
                  const __grid_constant__ TensorMap map_dq) {
  run_rows<OwnSums>(args, HeadsOfRound(round), RowsDropout(dropout), gradients,
                    {&map_q, &map_k, &map_v, &map_dout, &map_dq});
}

}  // namespace attune
