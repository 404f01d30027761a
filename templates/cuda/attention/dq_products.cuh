// SPDX-License-Identifier: Apache-2.0
// dQ = dS K of a step in the kernel of backward_sm90 that makes all gradients: over the keys of both warpgroups, a panel of dS and a tile of K each.
#pragma once

#include "cuda/attention/backward_ds.cuh"
#include "cuda/attention/backward_keys.cuh"

namespace attune {

// `rows`: of dS, `keys`: the columns of K that are multiplied; of the first warpgroup's.
template <int kCount>
__device__ __forceinline__ void issue_dq_product(float (&dq)[kCount], unsigned rows,
                                                 unsigned keys) {
  wgmma_ds_keys(dq, by_rows(rows), by_columns<kWarpgroupRows>(keys), 0);
  wgmma_ds_keys(dq, by_rows(rows + kDsPanelBytes),
                by_columns<kWarpgroupRows>(keys + kFusedLayout.parts.first_bytes), 1);
  wgmma_commit();
}

}  // namespace attune
