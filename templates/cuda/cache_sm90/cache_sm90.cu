// SPDX-License-Identifier: Apache-2.0
// cache_sm90: attention over caches (op attention_kvcache) for sm_90a with wgmma. A request may
// have any number of tokens: a few speculated tokens, a chunk of a prompt, or a whole prompt, with
// different lengths. The consumers are those of prefill_sm90 (sm90/wgmma_consumer.cuh). Unlike
// prefill_sm90, it finds tiles, lengths and pages on the device (cache_sm90/cache_stream.cuh,
// cache_loads.cuh), and several blocks may share a tile (cache_sm90/cache_join.cuh). Knobs:
// README.md.
//
// q, k, v, o: bf16 or fp16, head dims in steps of 8 to 256. k and v: pages of a multiple of 8 keys,
// or slots (shared/cache_args.h).
#include "shared/attention_args.h"
#include "shared/attention_enums.h"

#include "cuda/cache_sm90/cache_sm90_knobs.cuh"

namespace attune {

constexpr int kTransposeInside = 0;  // V is not transposed
// A TMA box lies within a page, so blocks of keys begin at multiples of kBlockN.
constexpr bool kBlocksFollowWindow = false;

}  // namespace attune

#include "cuda/sm90/sm90_layout.cuh"

#include "cuda/cache_sm90/cache_roles.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attune_kernel(                                 // in the order of the argument parts
        const __grid_constant__ ScoreArgs scores,  // where kScoreArgs
        const __grid_constant__ AttentionArgs args, const __grid_constant__ CacheArgs cache,
        const __grid_constant__ TensorMap map_k, const __grid_constant__ TensorMap map_v) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const KernelParts parts{args, scales, scores, dropout, map, cache};
  run_roles(parts, shared_memory, map_k, map_v);
}

}  // namespace attune
