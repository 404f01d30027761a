// SPDX-License-Identifier: Apache-2.0
// Rounds O to 16 bits and stores it through swizzled shared memory, with one TMA store per panel.
// TMA clips the stores at the ends of rows and head_dim.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/sm90/epilogue_rows.cuh"

namespace attune {

// Stores the warpgroup's own 64 rows by TMA, from shared memory to global memory. Called after
// await_staging().
template <int kCount>
__device__ __forceinline__ void store_output_tma(const TensorMap& map, const PrefillTile& tile,
                                                 unsigned shared, int warpgroup, int thread,
                                                 const float (&o)[kCount]) {
  const unsigned staging = shared + kLayout.o + warpgroup * kLayout.o_bytes;
  const int row = thread / 32 * 16 +
                  thread % 16;  // stmatrix: lanes 0-15 address rows, lanes 16-31 the next 8 columns
  const int chunk = thread % 32 / 16;
  const unsigned row_address = staging + row * kPanelRowBytes;
#pragma unroll
  for (int i = 0; i < kCount; i += 8) {  // 16 columns
    const int first_chunk = i / 4 % 8;   // of 8 columns, within the panel
    const unsigned address = row_address + i / 32 * kWarpgroupRows * kPanelRowBytes +
                             (((first_chunk + chunk) ^ (row % 8)) << 4);
    const unsigned low = pack<kDtypeO>(o[i], o[i + 1]);
    const unsigned high = pack<kDtypeO>(o[i + 2], o[i + 3]);
    if constexpr (kCount % 8 == 0) {
      stmatrix_x4(address, {low, high, pack<kDtypeO>(o[i + 4], o[i + 5]),
                            pack<kDtypeO>(o[i + 6], o[i + 7])});
    } else if (i + 8 <= kCount) {
      stmatrix_x4(address, {low, high, pack<kDtypeO>(o[(i + 4) % kCount], o[(i + 5) % kCount]),
                            pack<kDtypeO>(o[(i + 6) % kCount], o[(i + 7) % kCount])});
    } else {
      stmatrix_x2(address, low, high);
    }
  }
  fence_proxy_async();
  named_barrier_sync(kBarrierWarpgroup + warpgroup, kWarpgroupThreads);
  if (thread == 0) {
#pragma unroll
    for (int panel = 0; panel < kLayout.panels_o; ++panel)
      tma_store(
          map, staging + panel * kWarpgroupRows * kPanelRowBytes,
          {panel * kPanelColumns, tile.first_row + warpgroup * kHeadRows, tile.head, tile.batch});
    tma_store_commit();
  }
}

}  // namespace attune
