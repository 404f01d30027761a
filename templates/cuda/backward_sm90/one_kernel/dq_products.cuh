// SPDX-License-Identifier: Apache-2.0
// Computes dQ = dS K of a step, in the kernel of backward_sm90 that makes all gradients. The
// products go over the keys of both warpgroups: a panel of dS and a tile of K for each.
#pragma once

#include "cuda/backward_sm90/keys.cuh"
#include "cuda/backward_sm90/one_kernel/ds.cuh"

namespace attune {

// Waits until K of both warpgroups has arrived. `parity`: phase parity of the barriers of K.
__device__ __forceinline__ void await_all_keys(unsigned shared, unsigned parity) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    mbarrier_wait(shared + kFusedLayout.parts.first_full + 8 * i, parity, "k_full");
}

// Multiplies dS at `rows` and K at `keys` over the keys of one warpgroup.
template <int kCount>
__device__ __forceinline__ void multiply_ds(float (&dq)[kCount], unsigned rows, unsigned keys,
                                            int adds) {
  const unsigned long long ds = by_rows(rows), k = by_columns<kWarpgroupRows>(keys);
  if constexpr (kDqHalf == DqHalf::kTransposed)
    wgmma_keys_ds(dq, k, ds, adds);
  else
    wgmma_ds_keys(dq, ds, k, adds);
}

// Issues the products of both warpgroups' keys. `rows` and `keys` are dS and K of the first
// warpgroup.
template <int kCount>
__device__ __forceinline__ void issue_dq_product(float (&dq)[kCount], unsigned rows,
                                                 unsigned keys) {
  multiply_ds(dq, rows, keys, 0);
  multiply_ds(dq, rows + kDsPanelBytes, keys + kFusedLayout.parts.first_bytes, 1);
  wgmma_commit();
}

}  // namespace attune
