// SPDX-License-Identifier: Apache-2.0
// prefill_sm80_tf32: O = softmax(softmax_scale * Q K^T, masked) V for fp32 operands with tf32
// mma.sync m16n8k8, ldmatrix and cp.async; fp32 accumulators and O; sm_80 and later. It differs
// from prefill_sm80.cu only in the files that depend on the width of an element. kTf32Products 1 is
// the accuracy "fast", 3 is "split" (cuda/ptx/mma_tf32.cuh). Operands: shared/attention_args.h.
// Shared memory: shared/layouts/prefill_sm80_layout.h. Knobs: the constants that follow; legal
// values: generator/families/prefill/mma/prefill_sm80_tf32.cpp. How it works: README.md;
// measurements: LOG.md.
#include "cuda/prefill_sm80_tf32/prefill_sm80_tf32_knobs.cuh"
#include "shared/attention_args.h"
#include "shared/layouts/prefill_sm80_layout.h"

namespace attune {

constexpr int kThreads = 32 * kWarps;
constexpr PrefillSm80Layout kLayout{kBlockM, kBlockN,    kWarps,    kKvSlots, kShareKv,
                                    kQPlace, kHeadDimQk, kHeadDimV, 4};
static_assert(kArch >= 80, "cp.async and mma.sync of tf32 exist from sm_80 on");
static_assert(kDtypeQ == Dtype::kFp32 && kDtypeKv == Dtype::kFp32 && kDtypeO == Dtype::kFp32,
              "operands are fp32");
static_assert(kTf32Products == 1 || kTf32Products == 3, "1 or 3 products of tf32 make one of fp32");
static_assert(kKvSlots >= 1 && kKvSlots <= 5, "the ring has 1 to 5 slots");

}  // namespace attune

#include "cuda/prefill_sm80_tf32/mma_values_tf32.cuh"

#include "cuda/mma/kv_pipeline_async.cuh"
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
  attend_tile<AsyncKvPipeline>(parts, shared_address(shared_memory));
}

}  // namespace attune
