// SPDX-License-Identifier: Apache-2.0
// Gradients of attention for sm_90a with stored scores: the kernel of dQ writes dS and P to the
// workspace, from where the kernels of dK and dV read them (../two_kernels/backward_sm90.cu has the
// formulas). All but the first are launched in rounds of some heads.
//
//   attune_prepare  L2 and delta of every row
//   attune_kernel   dQ by tiles of rows; stores dS and P
//   attune_keys     dK from dS
//   attune_values   dV from P
//
// How it works: README.md.
#include "cuda/backward_sm90/stored/backward_sm90_stored_knobs.cuh"

#include "cuda/backward_sm90/none/own_sums.cuh"
#include "cuda/backward_sm90/rows.cuh"
#include "cuda/backward_sm90/stored/panels.cuh"
#include "cuda/backward_sm90/stored/products.cuh"
#include "cuda/backward_sm90/stored/values_kernel.cuh"  // where kGradientV == true
#include "cuda/parts/backward_prepare.cuh"

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

extern "C" __global__ void __launch_bounds__(kKeysThreads, 1)
    attune_keys(const __grid_constant__ AttentionArgs args, const __grid_constant__ RoundArgs round,
                const __grid_constant__ DropoutArgs dropout,  // where kDropout
                const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_dk) {
  run_stored<Stored::kDs>(args, HeadsOfRound(round), KeysDropout(dropout), map_q, map_dk);
}

}  // namespace attune
