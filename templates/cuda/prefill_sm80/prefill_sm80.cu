// SPDX-License-Identifier: Apache-2.0
// prefill_sm80: O = softmax(softmax_scale * Q K^T, masked) V with mma.sync m16n8k16, ldmatrix and
// cp.async; fp16 and bf16, fp32 accumulators, P rounded to 16 bits; sm_80 and later. Operands:
// shared/attention_args.h. Shared memory: shared/layouts/prefill_sm80_layout.h. Knobs: the
// constants that follow; legal values: generator/families/prefill/mma/prefill_sm80.cpp. How it
// works: README.md; measurements: LOG.md. Algorithm: FlashAttention-2 (Dao 2023) with rare exact
// rescaling (parts/online_softmax.cuh).
#include "cuda/prefill_sm80/prefill_sm80_knobs.cuh"
#include "shared/attention_args.h"
#include "shared/layouts/prefill_sm80_layout.h"

namespace attune {

constexpr int kThreads = 32 * kWarps;
constexpr PrefillSm80Layout kLayout{kBlockM,  kBlockN, kWarps,     kKvSlots,
                                    kShareKv, kQPlace, kHeadDimQk, kHeadDimV};
static_assert(kArch >= 80, "cp.async and mma.sync m16n8k16 exist from sm_80 on");
static_assert(kKvSlots >= 1 && kKvSlots <= 5, "the ring has 1 to 5 slots");

}  // namespace attune

#include "cuda/mma/mma_values_16bit.cuh"

#include "cuda/mma/kv_pipeline_async.cuh"
#include "cuda/mma/mma_prefill.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attune_kernel(                                    // in the order of the argument parts
        const __grid_constant__ BlockMapArgs map,     // where kMaskProgram
        const __grid_constant__ ScoreArgs scores,     // where kScoreArgs
        const __grid_constant__ DropoutArgs dropout,  // where kDropout
        const __grid_constant__ AttentionArgs args,
        const __grid_constant__ ScaleArgs scales  // where kMaxLogits
    ) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const KernelParts parts{args, scales, scores, dropout, map, cache};
  leave_dropout_state(dropout);
  attend_tile<AsyncKvPipeline>(parts, shared_address(shared_memory));
}

}  // namespace attune
