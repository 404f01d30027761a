// SPDX-License-Identifier: Apache-2.0
// Gradients of attention over lists of keys with mma.sync m16n8k16, ldmatrix and cp.async, for
// sm_80 and later in bf16 and fp16. Accumulators are fp32; P and dS are rounded to 16 bits. With L2
// = lse log2(e), c = softmax_scale log2(e), delta = rowsum(dout o) - dlse, and K and V gathered by
// a row's list:
//   attune_prepare   L2 and delta of every row           backward_lists_sm80/list_rows.cuh
//   attune_clear     sums of dK and dV are 0             backward_lists_sm80/list_sums.cuh
//   attune_kernel    P = exp2(c Q K^T - L2), dS = P (dout V^T - delta), dQ = scale dS K; adds
//                    scale dS^T Q to the sums of dK, and P^T dout to those of dV
//   attune_order     if sums need a fixed order          backward_lists_sm80/list_order.cuh
//   attune_join      likewise                            backward_lists_sm80/list_parts.cuh
//   attune_keys      rounds the sums to dK and dV        backward_lists_sm80/list_sums.cuh
// With kValuesInKeys V is the first columns of K, and dV is added to those of dK. Blocks add to the
// sums in another order each time; with kInParts they leave what they add to attune_join. Shared
// memory: shared/layouts/backward_lists_layout.h. Knobs: the constants that follow; legal values:
// generator/families/backward/backward_lists_sm80.cpp. How it works: README.md.
#include "cuda/backward_lists_sm80/backward_lists_sm80_knobs.cuh"

#include "cuda/backward_lists_sm80/list_products.cuh"
#include "cuda/backward_lists_sm80/list_rows.cuh"
#include "cuda/backward_lists_sm80/list_scores.cuh"
#include "cuda/backward_lists_sm80/list_sums.cuh"
#include "cuda/backward_lists_sm80/list_tiles.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ GradientArgs gradients,
                  const __grid_constant__ RoundArgs of_round,  // where kInParts
                  const __grid_constant__ KeyListArgs lists) {
  extern __shared__ __align__(1024) char shared[];
  if (args.batch == 0 || args.seqlen_q == 0) return;
  const RowRange rows = rows_of(args, of_round);
  const ListBlock block(args, lists, rows);
  if (block.in_round >= rows.count) return;
  const ListTiles tiles(args, block, shared_address(shared));
  const ListKeySums sums(args, block, tiles);
  const int steps = (block.count + kKeys - 1) / kKeys;
  tiles.load_rows(gradients.dout);
  tiles.put(0, tiles.entry(0));
  __syncthreads();
  tiles.load_keys(0);
  ListRowGradient dq;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int next = tiles.entry(step + 1);
    cp_async_wait<0>();
    __syncthreads();  // the keys have arrived; P and dS of the step before are no longer read
    ListScores(args, tiles, step).make();
    tiles.put(step + 1, next);
    __syncthreads();
    dq.add(tiles);
    __syncthreads();  // the keys are no longer read
    if (step + 1 < steps) tiles.load_keys(step + 1);
    sums.add(step);
  }
  cp_async_wait<0>();
  dq.store(block, gradients.dq, args.softmax_scale);
}

}  // namespace attune
