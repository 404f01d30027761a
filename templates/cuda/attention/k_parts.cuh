// SPDX-License-Identifier: Apache-2.0
// A tile of K in kKParts parts of some panels each, for heads of more than 256 columns, of which
// shared memory holds one tile: a part has a slot and barriers of its own, and is given back as
// soon as its products are done, so that the next tile comes in while this one is multiplied. Only
// the last part is given back by the caller, as a tile that is not in parts. Used by
// wgmma_products.cuh; the producer's side is in wide_loads.cuh.
#pragma once

#include "cuda/attention/kv_pipeline.cuh"
#include "cuda/ptx/wgmma_fence.cuh"
#include "generated/wgmma.cuh"

namespace attune {

// S = Q K^T in as many groups. The first part is there; `empty` becomes the barrier of the last.
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

// Gives back all parts but the last, each when its products are done; `kBehind` groups were issued
// behind them.
template <int kBehind, int kPart = 0>
__device__ __forceinline__ void release_k_parts(unsigned last_empty, int lane) {
  if constexpr (kPart + 1 < kKParts) {
    wgmma_wait<kBehind + kKParts - 1 - kPart>();
    mbarrier_arrive_if(lane == 0, last_empty - 8 * (kKParts - 1 - kPart));
    release_k_parts<kBehind, kPart + 1>(last_empty, lane);
  }
}

// All parts but the last of a tile that is not multiplied.
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
