// SPDX-License-Identifier: Apache-2.0
// Gradients of attention for sm_90a with TMA and wgmma, for operands in bf16 or fp16 with fp32
// accumulation. With L2 = lse log2(e), c = softmax_scale log2(e), delta = rowsum(dout o) - dlse:
//   P = exp2(c Q K^T - L2),  dS = P (dout V^T - delta)
//   dV = P^T dout,  dK = scale dS^T Q,  dQ = scale dS K
// A launch runs only the kernels that its gradients need:
//
//   attune_prepare  L2 and delta of every row, unless attune_kernel makes them (fold_sums)
//   attune_kernel   dQ by tiles of rows
//   attune_keys     dK and dV by tiles of keys
//   attune_values   dV, if registers do not hold both dK and dV
//   attune_join     dK and dV, if blocks leave sums of parts of heads (split_heads)
//
// No sum crosses blocks, so every run gives the same bits. The other three families of gradients on
// Hopper stand in the folders beside this one. Layout of shared memory:
// shared/layouts/backward_sm90_layout.h. How it works: README.md.
#include "cuda/backward_sm90/two_kernels/backward_sm90_knobs.cuh"

#include "cuda/backward_sm90/join.cuh"                       // where kHeadParts
#include "cuda/backward_sm90/two_kernels/keys_kernel.cuh"    // where kHasKeys == true
#include "cuda/backward_sm90/two_kernels/rows_kernel.cuh"    // where kGradientQ == true
#include "cuda/backward_sm90/two_kernels/values_kernel.cuh"  // where kSplitKv == 1
#include "cuda/parts/backward_prepare.cuh"                   // where kFoldSums == 0
