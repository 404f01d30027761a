// SPDX-License-Identifier: Apache-2.0
// prefill_sm75: the Turing form of prefill_sm80.cu, with fp16, mma.sync m16n8k8, and plain loads
// through registers instead of cp.async. Only the pipeline that fills shared memory differs; all
// other code is shared. Knobs: the constants that follow; legal values:
// generator/families/prefill/mma/prefill_sm75.cpp.
#include "cuda/prefill_sm75/prefill_sm75_knobs.cuh"
#include "shared/attention_args.h"
#include "shared/layouts/prefill_sm80_layout.h"

namespace attune {

constexpr int kThreads = 32 * kWarps;
constexpr int kKvSlots = 1;
constexpr int kHoldOffsets = 0;
constexpr PrefillSm80Layout kLayout{kBlockM,  kBlockN, kWarps,     kKvSlots,
                                    kShareKv, kQPlace, kHeadDimQk, kHeadDimV};
static_assert(kDtypeQ == Dtype::kFp16 && kDtypeKv == Dtype::kFp16 && kDtypeO == Dtype::kFp16,
              "Turing's mma.sync takes fp16");

}  // namespace attune

#include "cuda/mma/mma_values_16bit.cuh"

#include "cuda/mma/kv_pipeline_plain.cuh"
#include "cuda/mma/mma_prefill.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attune_kernel(                                 // in the order of the argument parts
        const __grid_constant__ BlockMapArgs map,  // where kMaskProgram
        const __grid_constant__ ScoreArgs scores,  // where kScoreArgs
        const __grid_constant__ AttentionArgs args) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const KernelParts parts{args, scales, scores, dropout, map, cache};
  attend_tile<PlainKvPipeline>(parts, shared_address(shared_memory));
}

}  // namespace attune
