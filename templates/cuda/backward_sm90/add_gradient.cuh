// SPDX-License-Identifier: Apache-2.0
// Adds a gradient of backward_sm90 to an fp32 tensor at the end of a tile (accumulate). A warpgroup
// scales its 64 rows and writes them to shared memory, from where TMA adds them. No other block
// adds to the same elements: each gets one addition per launch, so equal calls give equal bits.
#pragma once

#include "cuda/backward_sm90/layout.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

constexpr int kSumColumns = kPanelColumns / 2;  // fp32 columns of a panel

// Returns the shared address of this thread's accumulator 0, in panels of 64 rows of 128 bytes. The
// 16-byte pieces of a row are swizzled by the row's number. Rereads the thread index, so that it
// takes no register during the products.
__device__ __forceinline__ unsigned first_sum(unsigned staging) {
  const int thread = reread_thread_index() % kWarpgroupThreads;
  const int row = thread / 32 * 16 + thread % 32 / 4;
  return staging + row * kPanelRowBytes + (((thread % 4 / 2) ^ (row % 8)) << 4) + thread % 2 * 8;
}

// Returns the shared address of accumulator i. Accumulators 4 n and 4 n + 1 are 8 n columns further
// on. Accumulators 4 n + 2 and 4 n + 3 are 8 rows below these; both rows have the same swizzle.
__device__ __forceinline__ unsigned sum_at(unsigned first, int i) {
  return (first ^ (i / 4 % 4 << 5)) + i / 16 * kWarpgroupRows * kPanelRowBytes +
         i / 2 % 2 * 8 * kPanelRowBytes + i % 2 * 4;
}

// Adds the rows of a warpgroup. The staging memory holds half of the columns, so it is filled
// twice.
template <int kCount>
__device__ __forceinline__ void add_gradient(const TensorMap& map, unsigned staging, int warpgroup,
                                             TensorCoord at, float factor,
                                             const float (&gradient)[kCount]) {
  constexpr int kPanels = (2 * kCount + kPanelColumns - 1) / kPanelColumns;
  const unsigned sums = first_sum(staging);
  const bool leads = threadIdx.x % kWarpgroupThreads == 0;
#pragma unroll
  for (int first = 0; first * kSumColumns < 2 * kCount; first += kPanels) {
    if (first > 0 && leads) tma_store_wait_read();
    named_barrier_sync(kBarrierWarpgroup + warpgroup, kWarpgroupThreads);  // tile no longer read
#pragma unroll
    for (int i = 16 * first; i < 16 * (first + kPanels) && i < kCount; ++i)
      store_shared_word(sum_at(sums, i - 16 * first), __float_as_int(factor * gradient[i]));
    fence_proxy_async();
    named_barrier_sync(kBarrierWarpgroup + warpgroup, kWarpgroupThreads);
    if (!leads) continue;
#pragma unroll
    for (int panel = first; panel < first + kPanels && panel * kSumColumns < 2 * kCount; ++panel)
      tma_add(map, staging + (panel - first) * kWarpgroupRows * kPanelRowBytes,
              {panel * kSumColumns, at.row, at.head, at.batch});
    tma_store_commit();
  }
}

}  // namespace attune
