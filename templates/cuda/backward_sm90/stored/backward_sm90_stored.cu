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

#include "cuda/backward_sm90/stored/rows_kernel.cuh"

#include "cuda/backward_sm90/stored/keys_kernel.cuh"
#include "cuda/backward_sm90/stored/values_kernel.cuh"  // where kGradientV == true
#include "cuda/parts/backward_prepare.cuh"
