// SPDX-License-Identifier: Apache-2.0
// mla_sm90: attention over caches whose values are the first columns of their keys, for sm_90a with
// wgmma. This is v_in_k: absorbed latent attention with 576 columns of K, 512 of V and one head of
// K. A tile has up to 64 rows, tokens times heads. Each key is loaded into shared memory once and
// serves as K and as V (mla_sm90/mla_consumer.cuh; with fewer than 64 rows
// mla_sm90/mla_keys_first.cuh). Tiles, pages, shares and joins work as in cache_sm90.
//
// q, k, o: bf16 or fp16; k may also be e4m3 (mla_sm90/converted_keys.cuh). head_dim_qk in steps of
// 64 to 576, head_dim_v in steps of 128 from 384. k: pages of any size, or slots
// (shared/cache_args.h). How it works: README.md.
#include "shared/attention_args.h"
#include "shared/attention_enums.h"

#include "cuda/mla_sm90/mla_sm90_knobs.cuh"

namespace attune {

constexpr int kTransposeInside = 0;  // V is not transposed
// A TMA box lies within a page, so blocks of keys begin at multiples of kBlockN.
constexpr bool kBlocksFollowWindow = false;

}  // namespace attune

#include "cuda/mla_sm90/mla_roles.cuh"
#include "cuda/parts/none/tensor_maps.cuh"

namespace attune {

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attune_kernel(  // in the order of the argument parts
        const __grid_constant__ AttentionArgs args,
        const __grid_constant__ ScaleArgs scales,  // where kAccuracy
        const __grid_constant__ CacheArgs cache,
        const __grid_constant__ KeyListArgs lists,  // where kKeyLists
        const __grid_constant__ TensorMap k_map     // unless kGathersKeys
    ) {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const KernelParts parts{args, scales, scores, dropout, map, cache};
  run_mla_roles(parts, lists, shared_memory, k_map);
}

}  // namespace attune
