// SPDX-License-Identifier: Apache-2.0
// Attention forward for sm_90a with 8-bit operands: O = softmax(scale Q K^T + mask) V and LSE, for
// Q in e4m3, K and V in e4m3 or e5m2 with factors per tensor, head or block of rows, O in bf16 or
// fp16, fp32 accumulation. attune_kernel computes the attention, with the roles of prefill_sm90
// (sm90/warp_roles.cuh) and the consumer of prefill_sm90_fp8/fp8_consumer.cuh. attune_transpose_v
// first writes V^T into the workspace (prefill_sm90_fp8/fp8_transpose_v.cuh). With
// transpose_inside, idle warps write it into shared memory instead
// (prefill_sm90_fp8/fp8_transpose_inside.cuh). Layouts: shared/layouts/prefill_sm90_layout.h,
// shared/layouts/prefill_sm90_fp8_layout.h. Knobs and modes: README.md; rooflines and measurements:
// LOG.md.
#include "cuda/parts/kernel_parts.cuh"
#include "shared/attention_enums.h"

#include "cuda/prefill_sm90_fp8/prefill_sm90_fp8_knobs.cuh"

namespace attune {

// kProbabilityLog2 is log2 of a row's largest probability when the row's maximum is updated.
// kRescaleThreshold is log2 of the limit of all probabilities: the largest e4m3 value is 448 =
// 2^8.807.
constexpr int kProbabilityLog2 = kAccuracy == Accuracy::kFast ? 4 : 6;
constexpr float kRescaleThreshold = 8.8f;
constexpr int kPackHeads = 1;                // each head of q has its own factors
constexpr bool kBlocksFollowWindow = false;  // key blocks align with factor blocks
constexpr int kUnpack = 1;                   // mma.sync has no 8 bits here
// The prior grid to wait for is the kernel of this launch that writes V^T, or else any earlier
// grid.
constexpr bool kWaitsForVTranspose = !kTransposeInside;
constexpr bool kWaitsForPriorGrid = kTransposeInside;

}  // namespace attune

#include "cuda/sm90/sm90_layout.cuh"

#include "cuda/prefill_sm90_fp8/fp8_consumer.cuh"
#include "cuda/prefill_sm90_fp8/fp8_transpose_v.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/sm90/warp_roles.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attune_kernel(                                 // in the order of the argument parts
        const __grid_constant__ BlockMapArgs map,  // where kMaskProgram
        const __grid_constant__ ScoreArgs scores,  // where kScoreArgs
        const __grid_constant__ AttentionArgs args, const __grid_constant__ ScaleArgs scales,
        const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
        const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_o) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  if constexpr (kWaitsForPriorGrid)
    wait_for_prior_grid();  // all roles read memory that the prior grid may write
  const KernelParts parts{args, scales, scores, dropout, map, cache};
  await_block_map();
  run_roles<Fp8Consumer>(parts, shared_memory, map_q, map_k, map_v, map_o);
}

}  // namespace attune
