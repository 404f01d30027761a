// SPDX-License-Identifier: Apache-2.0
// Gradients of a bias, of slopes, of sinks and of loads of score programs (shared/score_gradient.h)
// with mma.sync m16n8k16, for sm_80 and later in bf16 and fp16, for sm_75 in fp16. fp32
// accumulators; P and dz are not rounded. With L2 = lse log2(e), delta = rowsum(dout o) - dlse:
//   attune_prepare   L2 and delta of every row  attention/backward_prepare.cuh
//   attune_kernel    dz = P (dout V^T - delta) by tiles of rows  attention/mma_score_gradient.cuh
//   attune_sum       sums over tiles and repeats, in one order  attention/score_gradient_sums.cuh
// A bias of each row is written by attune_kernel itself: a tile's block adds up the heads and batch
// entries that share an element, one after the other. Elsewhere each tile leaves its sums in the
// workspace. No sum is left to chance: the result is the same in each run. Sinks need no scores:
// attune_sum makes them of what attune_prepare left. Knobs: the constants that follow; legal
// values: generator/families/score_gradient_sm80.cpp.
#include "cuda/score_gradient_sm80_knobs.cuh"

#include "cuda/attention/backward_prepare.cuh"
#include "cuda/attention/mma_score_gradient.cuh"   // where kHasScores
#include "cuda/attention/score_gradient_sums.cuh"  // where kHasSums
