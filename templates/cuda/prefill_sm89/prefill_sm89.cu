// SPDX-License-Identifier: Apache-2.0
// prefill_sm89: O = softmax(softmax_scale * Q K^T, masked) V with mma.sync m16n8k32, ldmatrix and
// cp.async; Q e4m3, K and V e4m3 or e5m2, each with factors; fp32 accumulators, P rounded to e4m3,
// O fp16 or bf16; sm_89 and later. It differs from prefill_sm80.cu only in the files that depend on
// the width of an element. Operands: shared/kernel_arguments.h. Shared memory:
// shared/layouts/prefill_sm80_layout.h. Knobs: the constants that follow; legal values:
// generator/families/prefill/mma/prefill_sm89.cpp. How it works: README.md; measurements: LOG.md.
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/prefill_sm89/prefill_sm89_knobs.cuh"
#include "shared/layouts/prefill_sm80_layout.h"

namespace attune {

constexpr int kThreads = 32 * kWarps;
constexpr PrefillSm80Layout kLayout{kBlockM, kBlockN,    kWarps,    kKvSlots, kShareKv,
                                    kQPlace, kHeadDimQk, kHeadDimV, 1};
static_assert(kArch >= 89, "mma.sync of 8-bit floats exists from sm_89 on");
static_assert(kDtypeQ == Dtype::kE4m3, "q is e4m3");
static_assert(kKvSlots >= 1 && kKvSlots <= 5, "the ring has 1 to 5 slots");

}  // namespace attune

#include "cuda/prefill_sm89/mma_values_8bit.cuh"

#include "cuda/mma/kv_pipeline_async.cuh"
#include "cuda/mma/mma_prefill.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attune_kernel(                                 // in the order of the argument parts
        const __grid_constant__ BlockMapArgs map,  // where kMaskProgram
        const __grid_constant__ ScoreArgs scores,  // where kScoreArgs
        const __grid_constant__ AttentionArgs args, const __grid_constant__ ScaleArgs scales) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const KernelParts parts{args, scales, scores, dropout, map, cache};
  attend_tile<AsyncKvPipeline>(parts, shared_address(shared_memory));
}

}  // namespace attune
