// SPDX-License-Identifier: Apache-2.0
// Attention forward for sm_90a: O = softmax(scale Q K^T + mask) V and LSE, for Q, K, V in bf16 or
// fp16 with fp32 accumulation. One producer warp feeds 1 to 4 consumer warpgroups of 64 query rows
// each: TMA into swizzled shared memory, wgmma, softmax in registers. Layout of shared memory and
// registers: shared/layouts/prefill_sm90_layout.h. Roles: sm90/warp_roles.cuh,
// sm90/tma_producer.cuh, sm90/wgmma_consumer.cuh. Knobs and barriers: README.md; rooflines and
// measurements: LOG.md.
#include "shared/attention_args.h"
#include "shared/attention_enums.h"

#include "cuda/prefill_sm90/prefill_sm90_knobs.cuh"

namespace attune {

constexpr int kTransposeInside = 0;          // V is not transposed
constexpr bool kWaitsForVTranspose = false;  // no kernel of this launch prepares operands
// Blocks of keys begin at the first key that a tile sees through a window, not at key 0.
constexpr bool kBlocksFollowWindow = true;
// Blocks may start while the prior grid in the stream, whatever it is, still runs. They set up
// barriers and registers at once, and access memory only after that grid has ended.
constexpr bool kWaitsForPriorGrid = true;

}  // namespace attune

#include "cuda/sm90/sm90_layout.cuh"

#include "cuda/sm90/warp_roles.cuh"
#include "cuda/sm90/wgmma_consumer.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attune_kernel(                                    // in the order of the argument parts
        const __grid_constant__ BlockMapArgs map,     // where kMaskProgram
        const __grid_constant__ ScoreArgs scores,     // where kScoreArgs
        const __grid_constant__ DropoutArgs dropout,  // where kDropout
        const __grid_constant__ AttentionArgs args,
        const __grid_constant__ ScaleArgs scales,  // where kMaxLogits
        const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
        const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_o) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  // Names of absent parameters: parts/none/arguments.cuh.
  const KernelParts parts{args, scales, scores, dropout, map, cache};
  await_block_map();
  begin_dropout(parts.dropout);
  run_roles<WgmmaConsumer>(parts, shared_memory, map_q, map_k, map_v, map_o);
}

}  // namespace attune
