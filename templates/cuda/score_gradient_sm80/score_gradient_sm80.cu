// SPDX-License-Identifier: Apache-2.0
// Gradients of a bias, of slopes, of sinks and of tensors that score programs load
// (shared/score_gradient.h), with mma.sync m16n8k16. It runs on sm_80 and later in bf16 and fp16,
// and on sm_75 in fp16. Accumulators are fp32; P and dz are not rounded. With L2 = lse log2(e),
// delta = rowsum(dout o) - dlse:
//
//   attune_prepare  L2 and delta of every row                    parts/backward_prepare.cuh
//   attune_kernel   dz = P (dout V^T - delta) by tiles of rows   mma_score_gradient.cuh
//   attune_sum      sums over tiles and repeats, in one order    score_gradient_sums.cuh
//
// attune_kernel itself writes the gradient of a bias that has a value per row: a tile's thread
// block adds up the heads and batch entries that share an element, one after the other. For other
// gradients each tile stores its sums in the workspace. The order of all additions is fixed, so the
// result is the same in each run. Sinks need no scores: attune_sum makes their gradient from the
// results of attune_prepare. Knobs: the constants that follow; legal values:
// generator/families/backward/score_gradient_sm80.cpp.
#include "cuda/score_gradient_sm80/score_gradient_sm80_knobs.cuh"

#include "cuda/parts/backward_prepare.cuh"
#include "cuda/score_gradient_sm80/mma_score_gradient.cuh"   // where kHasScores
#include "cuda/score_gradient_sm80/score_gradient_sums.cuh"  // where kHasSums
