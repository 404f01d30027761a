// SPDX-License-Identifier: Apache-2.0
// Gradients of attention for sm_90a in one kernel: it makes dK and dV by tiles of keys, and adds dQ
// to fp32 sums in the workspace. A step has five products, where two kernels need seven
// (../two_kernels/backward_sm90.cu has the formulas).
//
//   attune_prepare  L2 and delta of every row
//   attune_kernel   dK, dV and fp32 sums of dQ (kernel.cuh)
//   attune_round    dQ, scaled and rounded
//   attune_join     dK and dV, if blocks leave sums of parts of heads (split_heads)
//
// Blocks add to dQ in the order of keys (ordered.cuh), so every run gives the same bits, or in no
// fixed order (unordered.cuh), which is faster. How it works: README.md.
#include "cuda/backward_sm90/one_kernel/backward_sm90_one_kernel_knobs.cuh"

#include "cuda/backward_sm90/join.cuh"  // where kHeadParts
#include "cuda/backward_sm90/one_kernel/kernel.cuh"
#include "cuda/backward_sm90/one_kernel/round.cuh"
#include "cuda/parts/backward_prepare.cuh"
