// SPDX-License-Identifier: Apache-2.0
// Loads panels of an operand into shared memory through TMA. Used by the producers of K and V.
#pragma once

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/sm90_layout.cuh"

namespace attune {

// Loads adjacent panels of kRows x kRowBytes of one operand, from `column` on, into consecutive
// panels of shared memory. A panel there has room for kRoom rows.
template <int kPanels, int kRows, int kRowBytes, int kRoom = kRows>
__device__ __forceinline__ void load_panels(unsigned shared_address, const TensorMap& map,
                                            unsigned full, int column, int row, int head,
                                            int batch) {
  mbarrier_arrive_expect_tx(full, kPanels * kRows * kRowBytes);
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
    tma_load(shared_address + panel * kRoom * kRowBytes, map, full,
             {column + panel * kRowBytes / kOperandBytes, row, head, batch});
}

}  // namespace attune
