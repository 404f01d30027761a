// SPDX-License-Identifier: Apache-2.0
// A tile of K in kKParts parts of several panels each. It is for heads of more than 256 columns,
// for which shared memory holds one tile of K. Each part has its own slot and barriers, and is
// released as soon as its products are done. So the next tile loads while this one is multiplied.
// The caller releases only the last part, as it releases a tile without parts. Used by
// wgmma_products.cuh; the producer's side is in wide_loads.cuh.
#pragma once

#include "cuda/ptx/wgmma_fence.cuh"
#include "cuda/sm90/kv_pipeline.cuh"
#include "generated/wgmma.cuh"

namespace attune {

constexpr bool kWideHeads = true;

// Computes S = Q K^T in kKParts groups. The first part has arrived. `empty` becomes the empty
// barrier of the last part.
template <int kCount, class Walk>
__device__ __forceinline__ void issue_qk_parts(float (&s)[kCount], unsigned q, Walk& k,
                                               unsigned* empty) {
  constexpr int kPanels = kLayout.panels_qk / kKParts;
  constexpr unsigned kPartOfQ = kPanels * kWarpgroupRows * kLayout.row_qk / 16;
  wgmma_fence();
#pragma unroll
  for (int part = 0; part < kKParts; ++part) {
    if (part > 0) mbarrier_wait(k.full(), k.parity(), "k_full");
    wgmma_qk(s, wgmma_descriptor<kLayout.row_qk>(q + part * kPartOfQ),
             wgmma_descriptor<kLayout.row_qk>(k.tile()), part);
    wgmma_commit();
    *empty = k.empty();
    k.advance();
  }
}

// Releases all parts but the last, each when its products are done. `kBehind` groups were issued
// after the groups of the parts.
template <int kBehind, int kPart = 0>
__device__ __forceinline__ void release_k_parts(unsigned last_empty, int lane) {
  if constexpr (kPart + 1 < kKParts) {
    wgmma_wait<kBehind + kKParts - 1 - kPart>();
    mbarrier_arrive_if(lane == 0, last_empty - 8 * (kKParts - 1 - kPart));
    release_k_parts<kBehind, kPart + 1>(last_empty, lane);
  }
}

// Skips all parts but the last of a tile that is not multiplied.
template <class Walk>
__device__ __forceinline__ void skip_k_parts(Walk& k, int lane) {
#pragma unroll 1
  for (int part = 1; part < kKParts; ++part) {
    mbarrier_wait(k.full(), k.parity(), "k_full");
    mbarrier_arrive_if(lane == 0, k.empty());
    k.advance();
  }
}

}  // namespace attune
